package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
)

const (
	// firstWait is how long a page waits for panels. The script brings those that are missing.
	firstWait = 250 * time.Millisecond
	// plainWait is the same for a browser without JavaScript, and for one panel.
	plainWait = 3 * time.Second
)

// A panel is a part of the page: a template of its name shows what its source reads.
type panel struct {
	Name, Title string
	unknown     string // what is unknown if the source cannot be read
	from        *source
	Stack       bool // below the previous panel, on a wide screen
}

// addPanels makes all panels, in the order of the page.
func (c *Console) addPanels() {
	status, history := c.statusSource(), c.reads(chartsEvery, c.readCharts)
	c.acts.rights = c.reads(listEvery, c.acts.readRights)
	list := []panel{
		{"sentence", "Overall status", "whether anything is stale is unknown", status, false},
		{"nines", "Invalidated in time", "how many invalidations were in time is unknown", status, false},
		{"figures", "Now", "how many rows wait is unknown", status, true},
		{"entities", "Last three hours, by entity", "which entities were invalidated is unknown", history, true},
		{"charts", "Last three hours", "what happened in the last three hours is unknown", history, false},
		{"found", "Old entries found", "whether old entries were found is unknown", c.reads(listEvery, c.readFound), false},
		{"recent", "Invalidated last", "what was invalidated last is unknown", c.recentSource(), false},
		{"workers", "Workers", "which workers MySQL knows is unknown", status, false},
		{"sweeps", "Sweeps", "which sweeps wait is unknown", status, true},
		{"dead", "Dead letters", "which rows are dead letters is unknown", c.reads(listEvery, c.readDead), false},
		{"delayed", "Delayed rows", "which rows are delayed is unknown", c.reads(listEvery, c.readDelayed), false},
		{"audit", "Operators' actions", "what operators did is unknown", c.reads(listEvery, c.readAudit), false},
	}
	if c.cfg.Actions {
		list = append(list, panel{"actions", "Actions", "what may be done here is unknown", c.reads(listEvery, c.acts.listActions), true})
	}
	for _, p := range list {
		c.panels = append(c.panels, &p)
		if !slices.Contains(c.sources, p.from) {
			c.sources = append(c.sources, p.from)
		}
	}
}

// errNoAccount reports that the page may not read MySQL.
var errNoAccount = errors.New("the console has no MySQL account of an operator; set --console-dsn")

// reads returns a source that needs MySQL.
func (c *Console) reads(every time.Duration, read func(ctx context.Context) (any, error)) *source {
	if c.db == nil {
		read = func(context.Context) (any, error) { return nil, errNoAccount }
	}
	return &source{every: every, limit: panelLimit, read: read}
}

// A view is the data of the template of a panel.
type view struct {
	Base    string // the prefix
	Acts    bool   // dead letters can be retried, corrected and discarded
	Data    any    // nil: there is none
	Loading bool
	Missing string     // what is not set up
	Err     string     // what is unknown, and why
	At      *time.Time // when Data was read, with Err
}

func (c *Console) view(p *panel, r reading) view {
	v := view{Base: c.cfg.Prefix, Data: r.data, Loading: r.tried.IsZero(), Acts: c.acts.onDead()}
	switch {
	case r.err == nil:
	case errors.Is(r.err, errNoAccount):
		v.Missing = p.unknown + ": " + r.err.Error()
	default:
		v.Err = p.unknown + ": " + reason(r.err)
		if r.data != nil {
			v.At = &r.at
		}
		if s, is := r.data.(state); is { // which is in part of an earlier reading
			v.At = &s.At
		}
	}
	return v
}

// reason returns an error with its fix, if one is known.
func reason(err error) string { return session.Explain(err).Error() }

// body returns the content of a panel.
func (c *Console) body(t *template.Template, p *panel, r reading) template.HTML {
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, p.Name, c.view(p, r)); err != nil {
		c.cfg.Logger.Error("console: a panel cannot be shown", "panel", p.Name, "error", err)
		return template.HTML(`<p class="error">This panel cannot be shown; the log of the worker has the reason.</p>`)
	}
	return template.HTML(b.String()) // of html/template, which escapes all data
}

// changed renders the panels of a source as events.
func (c *Console) changed(s *source, r reading) (events [][]byte) {
	for _, p := range c.panels {
		if p.from == s {
			events = append(events, event(p.Name, string(c.body(c.events, p, r))))
		}
	}
	return events
}

// fragment serves the content of one panel.
func (c *Console) fragment(w http.ResponseWriter, r *http.Request) {
	for _, p := range c.panels {
		if p.Name != r.PathValue("name") {
			continue
		}
		ctx, cancel := context.WithTimeout(r.Context(), plainWait)
		defer cancel()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// the client is gone, or it has the answer
		_, _ = w.Write([]byte(c.body(c.events, p, p.from.get(ctx, c.base))))
		return
	}
	http.NotFound(w, r)
}

// A shownPanel is a panel on a page.
type shownPanel struct {
	*panel
	Body template.HTML
}

// overview serves the first page.
func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	wait := firstWait
	if r.URL.Query().Has("wait") {
		wait = plainWait
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	data := struct {
		Panels  []shownPanel
		Loading bool // some panel has nothing to show
	}{Panels: make([]shownPanel, len(c.panels))}
	readings := make([]reading, len(c.panels))
	var all sync.WaitGroup
	for i, p := range c.panels {
		all.Go(func() { readings[i] = p.from.get(ctx, c.base) })
	}
	all.Wait()
	for i, p := range c.panels {
		data.Panels[i] = shownPanel{p, c.body(c.plain, p, readings[i])}
		data.Loading = data.Loading || readings[i].tried.IsZero()
	}
	data.Loading = data.Loading && wait != plainWait
	c.writePage(w, r, http.StatusOK, "overview", data)
}

// A failure is the data of an error page.
type failure struct {
	Status int
	Text   string
}

// Title names the status, as in "404 Not Found".
func (f failure) Title() string { return fmt.Sprint(f.Status, " ", http.StatusText(f.Status)) }

// A shownPage is the data of a page's template.
type shownPage struct {
	Base  string
	Name  string
	Theme string
	User  string
	Asked string    // the text of the search
	Login bool      // people log in with a token
	Now   time.Time // of this host: the browser's clock may differ
	Data  any
}

// writePage writes a page.
func (c *Console) writePage(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	page := shownPage{Base: c.cfg.Prefix, Name: name, User: c.cfg.user(r), Asked: r.URL.Query().Get("q"), Login: c.cfg.hasToken(), Now: time.Now().UTC(), Data: data}
	if theme, err := r.Cookie("unstale_theme"); err == nil && (theme.Value == "light" || theme.Value == "dark") {
		page.Theme = theme.Value
	}
	var b bytes.Buffer
	if err := c.plain.ExecuteTemplate(&b, name+".page", page); err != nil {
		c.cfg.Logger.Error("console: a page cannot be shown", "page", name, "error", err)
		http.Error(w, fmt.Sprintf("page %s cannot be shown; the log of the worker has the reason", name), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone, or it has the answer
}

//go:embed templates static
var files embed.FS

// version changes with the static files, which browsers keep for as long.
var version = func() string {
	h := fnv.New64a()
	list, _ := files.ReadDir("static") // embedded: it exists
	for _, f := range list {
		content, _ := files.ReadFile("static/" + f.Name())
		_, _ = h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))
}()

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	if r.URL.Query().Get("v") == version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(content) // the client is gone, or it has the answer
}

// parse parses all templates with the functions of f.
func parse(f funcs) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"text": output.Data, "title": func(panel string) string { return f.titles[panel] }, "count": output.Count, "span": output.Span, "after": after, "time": f.time, "sinceStart": f.since, "find": find, "link": link, "cut": cut,
		"deadrow": func(base string, acts, listed bool, l shownLetter) deadRow { return deadRow{l, base, acts, listed} },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }, "deref": func(n *int) int { return *n },
		"version": func() string { return version },
	}).ParseFS(files, "templates/*.html"))
}

// funcs are the functions of templates that depend on the time of rendering.
type funcs struct {
	now    func() time.Time  // nil: the script fills in relative times
	titles map[string]string // of panels
}

// since returns the element of a time that is an age ago.
func (f funcs) since(age time.Duration) template.HTML {
	return f.time(time.Now().Add(-age).Truncate(time.Second))
}

// time returns the element of a time: relative, with the absolute one as its title.
func (f funcs) time(t any) template.HTML {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *time.Time:
		if t != nil {
			at = *t
		}
	}
	if at.IsZero() {
		return "unknown"
	}
	at = at.UTC()
	relative := ""
	if f.now != nil {
		if d := f.now().Sub(at); d >= 0 {
			relative = output.Span(d) + " ago"
		} else {
			relative = "in " + output.Span(-d)
		}
	}
	// It has no data but a time.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`,
		at.Format("2006-01-02T15:04:05.000Z07:00"), at.Format("2006-01-02 15:04:05.000 UTC"), relative))
}

// find returns the address of a search, without the prefix.
func find(as string, parts ...string) string {
	return "/search?" + url.Values{"as": {as}, "q": {strings.Join(parts, " ")}}.Encode()
}

// link returns the rest of the address of an action on dead letters, for the template "deadlinks".
func link(base, name, value string) [2]string {
	return [2]string{base + "/act/", "?" + url.Values{name: {value}}.Encode()}
}

// cut returns the first names of a list.
func cut(names []string) []string { return names[:min(len(names), shownNames)] }

// after returns the time from one time to another, as text, or "" if one is unknown.
func after(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return "+" + output.Span(max(to.Sub(*from), 0))
}

// panelLimit bounds one statement for a panel.
const panelLimit = 2 * time.Second

// A source reads what one or more panels show. All pages share its readings, and at most one is
// under way. Safe for concurrent use.
type source struct {
	every time.Duration // how long a reading counts as current
	limit time.Duration // of one reading
	read  func(ctx context.Context) (data any, err error)

	mu      sync.Mutex
	last    reading
	expired bool          // since the start of the last reading
	running chan struct{} // closed at the end of the current reading; nil: none
}

// A reading is the result of a source.
type reading struct {
	data  any       // of the latest reading that had any; nil: none yet
	at    time.Time // when that was read
	err   error     // of the latest reading
	tried time.Time // when that ended; zero: never
}

// get returns the latest reading. If it is not current, get starts another one and waits until ctx
// ends; the reading continues meanwhile. base ends it early.
func (s *source) get(ctx, base context.Context) reading {
	s.mu.Lock()
	if !s.expired && !s.last.tried.IsZero() && time.Since(s.last.tried) < s.rest(s.last.err) {
		defer s.mu.Unlock()
		return s.last
	}
	done := s.start(base)
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// sources has the source of each panel once.
type sources []*source

// expire makes all panels read again.
func (all sources) expire() {
	for _, s := range all {
		s.expire()
	}
}

// expire makes the next get start another reading.
func (s *source) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

// retryAfter is how soon a failed reading is tried again.
const retryAfter = time.Second

// rest returns how long a reading counts as current.
func (s *source) rest(err error) time.Duration {
	if err != nil {
		return min(s.every, retryAfter)
	}
	return s.every
}

// start begins a reading unless one is under way. It needs the lock.
func (s *source) start(base context.Context) (done <-chan struct{}) {
	if s.running != nil {
		return s.running
	}
	running := make(chan struct{})
	s.running, s.expired = running, false
	go func() {
		ctx, cancel := context.WithTimeout(base, s.limit)
		data, err := s.read(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last.err, s.last.tried = err, time.Now()
		if data != nil {
			s.last.data, s.last.at = data, s.last.tried
		}
		s.running = nil
		close(running)
	}()
	return running
}

// idle waits until no reading is under way.
func (s *source) idle() {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil {
		<-running
	}
}
