package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"sync"
	"time"

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
	status, history := c.statusSource(), c.chartsSource()
	c.acts.rights = c.reads(listEvery, c.acts.readRights)
	list := []panel{
		{"sentence", "Overall status", "whether anything is stale is unknown", status, false},
		{"nines", "Invalidated in time", "how many invalidations were in time is unknown", status, false},
		{"figures", "Now", "how many rows wait is unknown", status, true},
		{"entities", "Last three hours, by entity", "which entities were invalidated is unknown", history, true},
		{"charts", "Last three hours", "what happened in the last three hours is unknown", history, false},
		{"found", "Old entries found", "whether old entries were found is unknown", c.foundSource(), false},
		{"recent", "Invalidated last", "what was invalidated last is unknown", c.recentSource(), false},
		{"workers", "Workers", "which workers MySQL knows is unknown", status, false},
		{"sweeps", "Sweeps", "which sweeps wait is unknown", status, true},
		{"dead", "Dead letters", "which rows are dead letters is unknown", c.deadSource(), false},
		{"delayed", "Delayed rows", "which rows are delayed is unknown", c.delayedSource(), false},
		{"audit", "Operators' actions", "what operators did is unknown", c.auditSource(), false},
	}
	if c.cfg.Actions {
		list = append(list, panel{"actions", "Actions", "what may be done here is unknown", c.reads(listEvery, c.acts.list), true})
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
func (c *Console) changed(s *source) (events [][]byte) {
	s.mu.Lock()
	r := s.last
	s.mu.Unlock()
	for _, p := range c.panels {
		if p.from == s {
			events = append(events, event(p.Name, []byte(c.body(c.events, p, r))))
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
	c.write(w, r, http.StatusOK, "overview", data)
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

// write writes a page.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
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
