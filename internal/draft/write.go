package draft

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// width is the longest line of a draft, except for long SQL and names.
const width = 100

// A writer writes the text of a map.
type writer struct {
	strings.Builder
	line   int
	places []placed
}

// placed are the lines of an entity.
type placed struct {
	first, last int
	of          *entity
	isCapture   bool
}

func (w *writer) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.line += strings.Count(text, "\n") + 1
	w.WriteString(text + "\n")
}

// of records the lines that write writes for an entity.
func (w *writer) of(e *entity, isCapture bool, write func()) {
	first := w.line + 1
	write()
	w.places = append(w.places, placed{first, w.line, e, isCapture})
}

// comment writes a comment, in lines of the width.
func (w *writer) comment(indent, text string) {
	line := indent + "#"
	for _, word := range strings.Fields(text) {
		if strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) {
			word = strconv.Quote(word)
		}
		if len(line)+1+len(word) > width && line != indent+"#" {
			w.add("%s", line)
			line = indent + "#  "
		}
		line += " " + word
	}
	w.add("%s", line)
}

// flow writes a mapping of YAML in one line or several.
func (w *writer) flow(begin string, items []string, end string) {
	line, indent := begin, strings.Repeat(" ", len(begin)-len(strings.TrimLeft(begin, " "))+4)
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		if len(line)+1+len(item) > width && line != begin {
			w.add("%s", line)
			line = indent + item
		} else {
			line += " " + item
		}
	}
	w.add("%s", line+end)
}

// write writes the map, and leaves out what is refused, until nothing is.
func (d *Draft) write(ctx context.Context, db *sql.DB, o Options, prefix string) error {
	for {
		if err := d.settle(ctx, db); err != nil {
			return err
		}
		w := &writer{}
		d.writeHead(w, o, prefix)
		drafted := 0
		w.add("entities:")
		for _, e := range d.all {
			if e.isDrafted() {
				drafted++
				w.of(e, false, func() { w.writeEntity(e) })
			}
		}
		if drafted == 0 {
			e := d.all[0]
			return fmt.Errorf("no table can be an entity of a map; for example %s: %s", scalar(e.Name), strings.Join(e.refused, "; "))
		}
		d.writeCaptures(w)
		good, err := d.compile([]byte(w.String()), w.places)
		if err != nil {
			return fmt.Errorf("the draft is not a valid map, which is an error of unstale: %w", err)
		}
		if good {
			d.Text = []byte(w.String())
			d.report()
			return nil
		}
	}
}

func (d *Draft) report() {
	for _, e := range d.all {
		r := TableReport{Table: e.Name, Captured: len(e.captures()) > 0, Reason: strings.Join(e.refused, "; "), Left: e.left}
		if e.isDrafted() {
			r.Entity = e.name
		}
		d.Tables = append(d.Tables, r)
	}
}

func (d *Draft) writeHead(w *writer, o Options, prefix string) {
	captured := 0
	for _, e := range d.all {
		if len(e.captures()) > 0 {
			captured++
		}
	}
	w.add(`# A draft by "unstale map draft", for you to edit: %d of %s are captured.`, captured, output.Things(len(d.all), "table"))
	w.add("#")
	w.comment("", "1. Replace keys by the keys that your readers store. --keys and --redis-url propose them.")
	w.comment("", "2. Remove entities whose rows no cached value shows, and their captures.")
	w.comment("", "3. A change of a row reaches its own keys and, by as, the keys of the rows that it is a part of. If keys of a product show its brand, too, add a lookup: see docs/map-cookbook.md.")
	w.comment("", "4. A capture without watch counts changes of all columns. With watch, a new column does not count until you add it: --diff shows it.")
	w.add("#")
	if prefix != "" {
		w.comment("", "Names of entities lack the prefix "+scalar(prefix)+" of the tables.")
	}
	w.comment("", "Afterwards run: unstale map check FILE --mysql-dsn DSN")
	headed := false
	for _, f := range d.Families {
		if f.Entity == "" {
			if !headed {
				w.add("#")
				w.comment("", "Families of keys that no table explains:")
			}
			headed = true
			w.comment("", fmt.Sprintf("- %s (%s)", scalar(f.Family), output.Things(f.Keys, "key")))
		}
	}
	w.add("version: 1")
	w.add("vars: { app: %s }", strconv.Quote(o.App))
	w.add("")
}

// writeEntity writes the section of an entity.
func (w *writer) writeEntity(e *entity) {
	w.comment("  ", "Table "+scalar(e.Name)+".")
	for _, note := range e.notes {
		w.comment("  ", note)
	}
	w.add("  %s:", scalar(e.name))
	var params, lookups, as []string
	for _, l := range e.expands() {
		if l.param == "" {
			as = append(as, scalar(l.parent.name)+`: "{id}"`)
			continue
		}
		params = append(params, l.param)
		as = append(as, scalar(l.parent.name)+`: "{`+l.param+`}"`)
		if e.canLookUp() {
			lookups = append(lookups, fmt.Sprintf("      %s: { by: [id], sql: %s }", scalar(l.param), strconv.Quote(l.lookup(e))))
		}
	}
	if len(params) > 0 {
		w.add("    params: %s", list(params))
	}
	if len(lookups) > 0 {
		w.add("    lookups:\n%s", strings.Join(lookups, "\n"))
	}
	if len(as) > 0 {
		w.flow("    as: {", as, " }")
	}
	w.writeKeys(e, len(as) > 0)
}

// writeKeys writes the templates of the keys in use, or a proposal.
func (w *writer) writeKeys(e *entity, expands bool) {
	templates := map[string][]string{}
	for _, f := range e.keys {
		if quoted := strconv.Quote(f.Template); !slices.Contains(templates[f.Kind], quoted) {
			templates[f.Kind] = append(templates[f.Kind], quoted)
		}
	}
	for _, kind := range []string{"keys", "patterns"} {
		if len(templates[kind]) > 0 {
			w.flow("    "+kind+":", nested("[", templates[kind], "]"), "")
		}
	}
	switch {
	case len(templates) > 0:
	case e.known && expands:
		w.comment("    ", "No key in use has its name.")
	default:
		if e.known {
			w.comment("    ", "No key in use has its name: a proposal.")
		}
		w.add("    keys: [%s]", strconv.Quote("{app}:"+e.name+":{id}"))
	}
}

func (d *Draft) writeCaptures(w *writer) {
	var left []*entity
	headed := false
	for _, e := range d.all {
		all := e.captures()
		if len(all) == 0 {
			left = append(left, e)
			continue
		}
		if !headed {
			w.add("\ncapture:")
			headed = true
		}
		w.of(e, true, func() { w.writeTable(e, all) })
	}
	if len(left) == 0 {
		return
	}
	w.add("")
	w.comment("", "Not captured. Changes of these tables make nothing stale unless the application inserts rows:")
	for _, e := range left {
		w.comment("", "- "+scalar(e.Name)+": "+strings.Join(e.refused, "; "))
	}
}

// writeTable writes the captures of a table.
func (w *writer) writeTable(e *entity, all []invalidation.Capture) {
	if len(e.left) > 0 {
		w.comment("  ", "Not watched, as a time of a change or a counter: "+strings.Join(scalars(e.left), ", ")+".")
	}
	switch reasons := strings.Join(e.refused, "; "); {
	case e.way == noCascades:
		w.comment("  ", "Changes by foreign keys are not covered: "+reasons)
	case e.way == eachParent:
		w.comment("  ", "Only its parents have rows: "+reasons)
	case len(e.ignored) > 0:
		w.comment("  ", "Changes by some foreign keys are not covered: "+reasons)
	}
	begin := "  " + scalar(e.Name) + ": {"
	if len(all) > 1 {
		w.add("  %s:", scalar(e.Name))
		begin = "    - {"
	}
	for _, c := range all {
		items := []string{"entity: " + scalar(c.Entity), "id: " + scalar(string(c.ID))}
		items = append(items, nested("watch: [", scalars(c.Watch), "]")...)
		var params []string
		for _, p := range c.Params {
			params = append(params, scalar(p.Name)+": "+scalar(string(p.Source)))
		}
		items = append(items, nested("params: { ", params, " }")...)
		var ignored []string
		for _, one := range c.Ignored {
			ignored = append(ignored, scalar(one.Key)+": "+one.Way())
		}
		switch {
		case c.IgnoreCascades:
			items = append(items, "cascades: ignore")
		case len(ignored) > 0:
			items = append(items, nested("cascades: { ", ignored, " }")...)
		}
		w.flow(begin, items, " }")
	}
}

func scalars(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, scalar(text))
	}
	return all
}

// nested returns the items of a list or mapping inside of a flow.
func nested(begin string, items []string, end string) []string {
	if len(items) == 0 {
		return nil
	}
	items = slices.Clone(items)
	items[0] = begin + items[0]
	items[len(items)-1] += end
	return items
}
