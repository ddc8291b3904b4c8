package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
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
	c.acts = &actor{cfg: cfg, signer: c.signer, db: c.db, redis: c.redis, base: c.base, write: c.writePage, runs: runs{byID: map[string]*run{}}, key: []byte(rand.Text()), done: func() { c.sources.expire() }}
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
	c.acts.runs.waitAll()
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
		c.writePage(w, r, http.StatusNotFound, "error", failure{http.StatusNotFound, "the console has no page " + r.URL.Path})
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
			s.setCookie(w, r, "", -1)
			http.Redirect(w, r, at+"/login", http.StatusSeeOther)
		})
	}
	return &guard{cfg: c.cfg, signer: c.signer, inside: inside, outside: outside, write: c.writePage}
}

// A Worker is the worker of this process, such as a *worker.Worker. Its methods are called
// concurrently.
type Worker interface {
	Alive() error
	Ready() error
	Map() *invalidation.Map
	Metrics() prometheus.Collector
}

// A Config configures a [Console]. All fields are optional.
type Config struct {
	// Prefix is the path of the Console, for example "/unstale". It begins with
	// a slash and does not end with one. Default: the root.
	Prefix string

	// MySQL is the database of the outbox, with an operator's account: see docs/accounts.md. The
	// Console opens at most four sessions and closes them. New does not modify it. Nil: the page
	// shows only what Worker knows.
	MySQL *mysql.Config
	// Redis is the server of the cache, with an operator's account, as in worker.Config. New does
	// not modify it. Nil: the page shows neither entries of Redis nor what workers publish there.
	Redis *redis.UniversalOptions
	// Worker is the worker of this process. Nil: none; then the page has no map.
	Worker Worker

	// Actions lets people retry, correct and discard dead letters, pause and resume workers,
	// and replay the journal, if the account has the privileges. Default: the page changes nothing.
	Actions bool
	// MessageKey and RedisShardedPubSub are as for the workers, for the messages of a replay.
	MessageKey         protocol.MessageKey
	RedisShardedPubSub bool

	// Token is a secret that a person enters once per browser, at least 16 bytes. Sessions last 12
	// hours, in every process with the same token.
	Token string
	// TokenFile is a file that has the token. It is read again for each request: a new token ends
	// all sessions. While it cannot be read, the last token counts. Set at most one of the two.
	TokenFile string
	// UserHeader names the header with the authenticated user that a reverse proxy sends, for
	// example X-Forwarded-User. ProxySecret is a secret that the proxy sends in
	// X-Unstale-Proxy-Secret, at least 16 bytes: it proves that a request comes from the proxy. Set
	// both or none, and none with a token.
	UserHeader  string
	ProxySecret string

	// Logger receives errors of the page itself. Default slog.Default().
	Logger *slog.Logger
}

// headerName matches the name of a header that no server or proxy drops.
var headerName = regexp.MustCompile("^[A-Za-z0-9-]+$")

// unreadable are headers that net/http or a proxy consumes.
var unreadable = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// leastSecret is the length of a token or secret, in bytes.
const leastSecret = 16

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate names the field and the rule that it breaks. It asks no server, and reads TokenFile. No
// error contains a secret.
func (c Config) Validate() error {
	switch {
	case c.Prefix != "" && (c.Prefix != path.Clean(c.Prefix) || c.Prefix[0] != '/' || c.Prefix == "/"):
		return fmt.Errorf("prefix %q: must begin with a slash and not end with one, for example /unstale", c.Prefix)
	case strings.ContainsAny(c.Prefix, "{}%?#"):
		return fmt.Errorf("prefix %q: must be a plain path, for example /unstale", c.Prefix)
	case c.Token != "" && c.TokenFile != "":
		return errors.New("a token and a file of a token are given: set one of them")
	case c.hasToken() && c.UserHeader+c.ProxySecret != "":
		return errors.New("a token and a user header or proxy secret are given: set one kind")
	case (c.UserHeader == "") != (c.ProxySecret == ""):
		return errors.New("a user header needs a proxy secret, and a proxy secret a user header: without both, anyone can send the header")
	case c.ProxySecret != "" && len(c.ProxySecret) < leastSecret:
		return fmt.Errorf("the proxy secret has %d bytes: must have at least %d, for example from openssl rand -base64 32", len(c.ProxySecret), leastSecret)
	case c.UserHeader != "" && !headerName.MatchString(c.UserHeader) || slices.Contains(unreadable, http.CanonicalHeaderKey(c.UserHeader)):
		return fmt.Errorf("user header %q: a request cannot have it, or it concerns the connection; use another one, for example X-Forwarded-User", c.UserHeader)
	case http.CanonicalHeaderKey(c.UserHeader) == secretHeader:
		return fmt.Errorf("user header %s: is the header of the secret", c.UserHeader)
	}
	if c.hasToken() {
		if _, err := c.readToken(); err != nil {
			return err
		}
	}
	if c.MySQL != nil {
		if err := c.sessions().WithDefaults().Validate(); err != nil {
			return err
		}
	}
	if c.Redis != nil {
		if err := c.keyspace().WithDefaults().Validate(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
	}
	return nil
}

// ValidateAddress reports whether the page may be served on an address such as 127.0.0.1:9118. An
// address that is not a loopback one needs a token, or a user header and a proxy secret. Names are
// not resolved; localhost is a loopback address.
func (c Config) ValidateAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("address %q: must be host:port, for example 127.0.0.1:9118", address)
	case !isLoopback(host) && !c.hasToken() && c.ProxySecret == "":
		return fmt.Errorf("address %q: is reachable from other hosts, so the console needs a token, or a user header and a proxy secret", address)
	}
	return nil
}

func (c Config) hasToken() bool { return c.Token+c.TokenFile != "" }

// readToken returns the token, also from its file.
func (c Config) readToken() (token string, err error) {
	if token = c.Token; c.TokenFile != "" {
		if token, err = credentials.ReadSecret(c.TokenFile); err != nil {
			return "", fmt.Errorf("the file of the token: %w", err)
		}
		token = strings.TrimSpace(token)
	}
	if len(token) < leastSecret {
		return "", fmt.Errorf("the token has %d bytes: must have at least %d, for example from openssl rand -base64 32", len(token), leastSecret)
	}
	return token, nil
}

func (c Config) sessions() session.Config {
	return session.Config{MySQL: c.MySQL, Worker: "console", StatementTimeout: panelLimit}
}

func (c Config) keyspace() keyspace.Options {
	return keyspace.Options{Redis: c.Redis, MessageKey: c.MessageKey, ShardedPubSub: c.RedisShardedPubSub}
}
