package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
)

// A Console is an [http.Handler] of the page. It opens connections when the first page asks.
// Safe for concurrent use.
type Console struct {
	cfg     Config
	db      *session.Sessions  // nil: no account
	redis   *keyspace.Keyspace // nil: none
	panels  []*panel
	sources sources
	signer  *signer
	live    *hub
	acts    *actor
	handler http.Handler

	plain  *template.Template // with relative times, for browsers without JavaScript
	events *template.Template // without them: equal data are equal bytes

	base context.Context
	stop context.CancelFunc
}

// New applies the defaults, checks cfg and returns a Console. It connects to nothing.
func New(cfg Config) (*Console, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	s, err := newSigner(cfg)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{cfg: cfg, signer: s}
	if cfg.MySQL != nil {
		if c.db, err = session.Open(cfg.sessions()); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
	}
	if cfg.Redis != nil {
		if c.redis, err = keyspace.Open(cfg.keyspace()); err != nil {
			return nil, errors.Join(fmt.Errorf("console: redis: %w", err), c.closeServers())
		}
	}
	c.base, c.stop = context.WithCancel(context.Background())
	c.acts = &actor{cfg: cfg, signer: c.signer, db: c.db, redis: c.redis, base: c.base, write: c.write, runs: runs{byID: map[string]*run{}}, key: []byte(rand.Text()), done: func() { c.sources.expire() }}
	c.addPanels()
	titles := map[string]string{}
	for _, p := range c.panels {
		titles[p.Name] = p.Title
	}
	c.plain, c.events = parse(funcs{time.Now, titles}), parse(funcs{titles: titles})
	c.live = &hub{sources: c.sources, changed: c.changed, base: c.base, serves: c.signer.serves, pages: map[chan []byte]bool{}, latest: map[*source][][]byte{}}
	c.handler = c.routes()
	return c, nil
}

// ServeHTTP serves the page and its parts.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Close disconnects open pages, stops actions, and closes the connections to MySQL and Redis.
func (c *Console) Close() error {
	c.stop()
	c.acts.runs.wait()
	c.live.loops.Wait()
	for _, s := range c.sources {
		s.idle()
	}
	c.acts.rights.idle()
	return c.closeServers()
}

func (c *Console) closeServers() (err error) {
	if c.redis != nil {
		err = c.redis.Close()
	}
	if c.db != nil {
		err = errors.Join(err, c.db.Close())
	}
	return err
}

func (c *Console) routes() http.Handler {
	at := c.cfg.Prefix
	inside, outside := http.NewServeMux(), http.NewServeMux()
	inside.HandleFunc("GET "+at+"/{$}", c.overview)
	inside.HandleFunc("GET "+at+"/panel/{name}", c.fragment)
	inside.HandleFunc("GET "+at+"/search", c.search)
	inside.HandleFunc("GET "+at+"/dead", c.serveDeadList)
	inside.HandleFunc("GET "+at+"/act/{action}", c.acts.act)
	inside.HandleFunc("POST "+at+"/act/{action}", c.acts.act)
	inside.HandleFunc("GET "+at+"/run/{id}", c.acts.showRun)
	inside.HandleFunc("GET "+at+"/events", c.live.stream)
	inside.HandleFunc("GET "+at+"/", func(w http.ResponseWriter, r *http.Request) {
		c.write(w, r, http.StatusNotFound, "error", failure{http.StatusNotFound, "the console has no page " + r.URL.Path})
	})
	if at != "" {
		inside.Handle("GET "+at, http.RedirectHandler(at+"/", http.StatusMovedPermanently))
	}
	for _, mux := range []*http.ServeMux{inside, outside} {
		mux.HandleFunc("GET "+at+"/static/{file}", serveStatic)
	}
	if s := c.signer; c.cfg.hasToken() {
		c.loginRoutes(outside, s)
		inside.HandleFunc("POST "+at+"/logout", func(w http.ResponseWriter, r *http.Request) {
			s.end(w, r)
			http.Redirect(w, r, at+"/login", http.StatusSeeOther)
		})
	}
	return &guard{cfg: c.cfg, signer: c.signer, inside: inside, outside: outside, write: c.write}
}
