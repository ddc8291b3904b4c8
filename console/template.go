package console

import (
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
)

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
		"text": output.Data, "title": func(panel string) string { return f.titles[panel] }, "count": output.Count, "span": output.Span, "after": after, "time": f.time, "sinceStart": f.since, "find": find, "link": link, "deadrow": newDeadRow, "cut": cut,
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }, "deref": func(n *int) int { return *n },
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
