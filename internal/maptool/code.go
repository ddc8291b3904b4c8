package maptool

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A codeWriter writes declarations in a language. The first error stays.
type codeWriter struct {
	n        *Names
	language string
	out      bytes.Buffer
	taken    map[string]string // exported names, and what has them
	vars     map[string]int    // the number of the value of each var
	fixed    map[string]string // the values of vars that do not depend on the environment
	caseless bool              // names that differ in case are one name
	err      error
}

// newCodeWriter returns a writer for a language in which the variables of the map have a name.
func newCodeWriter(n *Names, language, variables string) codeWriter {
	return codeWriter{n: n, language: language, taken: map[string]string{variables: "the variables of the map"}, vars: map[string]int{}, fixed: map[string]string{}}
}

func (w *codeWriter) printf(format string, args ...any) { fmt.Fprintf(&w.out, format, args...) }

// writeNames calls the functions that write a read and an entity with those of the map.
func (w *codeWriter) writeNames(read func(*Read), entity func(*Entity)) {
	for i := range w.n.Reads {
		read(&w.n.Reads[i])
	}
	for i := range w.n.Entities {
		entity(&w.n.Entities[i])
	}
}

func (w *codeWriter) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// claim returns an exported name, for what has it in the map.
func (w *codeWriter) claim(exported, what string) string {
	key := exported
	if w.caseless {
		key = strings.ToLower(exported)
	}
	if other, twice := w.taken[key]; twice {
		w.fail("%s and %s both have the %s name %s; rename one of them in the map", other, what, w.language, exported)
	}
	if first := exported[:min(1, len(exported))]; strings.ToLower(first) == strings.ToUpper(first) {
		w.fail("%s has no %s name, since it does not begin with a letter; rename it in the map", what, w.language)
	}
	w.taken[key] = what
	return exported
}

// claimParam checks the name of a param among those of an entity, which map to params.
func (w *codeWriter) claimParam(in map[string]string, name string, p Param, e *Entity) {
	other, twice := in[name]
	switch {
	case name == "":
		w.fail("the param %s of the entity %s has no %s name; rename it in the map", p.Name, e.Name, w.language)
	case twice:
		w.fail("the params %s and %s of the entity %s both have the %s name %s; rename one of them in the map", other, p.Name, e.Name, w.language, name)
	}
	in[name] = p.Name
}

// eachVar calls write for each value of a var.
func (w *codeWriter) eachVar(write func(v Var, text string)) {
	next := 0
	for _, v := range w.n.Vars {
		texts := v.Values
		if texts == nil {
			w.vars[v.Name] = next
			texts = []string{v.Text}
			if !strings.Contains(v.Text, "${") {
				w.fixed[v.Name] = v.Text
			}
		}
		if v.Unknown {
			w.fail("the var %s is a list with values of the environment, which generated code cannot know; write them out", v.Name)
		}
		for _, text := range texts {
			write(v, text)
			next++
		}
	}
}

// resolved returns a template with the values of vars that do not depend on the environment.
func (w *codeWriter) resolved(t Template) (out Template) {
	for _, p := range t {
		if fixed, ok := w.fixed[p.Var]; ok {
			p = Part{Text: fixed}
		}
		if last := len(out) - 1; p.Text != "" && last >= 0 && out[last].Text != "" {
			out[last].Text += p.Text
		} else {
			out = append(out, p)
		}
	}
	return out
}

// String returns the template as in the map.
func (t Template) String() string {
	var b strings.Builder
	for _, p := range t {
		if p.Text != "" {
			b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.Text))
		} else {
			b.WriteString("{" + p.Var + p.Hole + "}")
		}
	}
	return b.String()
}

func (t Template) hasVar() bool {
	return slices.ContainsFunc(t, func(p Part) bool { return p.Var != "" })
}

// span returns the bounds of consecutive numbers.
func span(values []string) (first, last int64, ok bool) {
	for i, v := range values {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || i > 0 && n != last+1 {
			return 0, 0, false
		}
		if last = n; i == 0 {
			first = n
		}
	}
	return first, last, true
}

// jitterOf returns by how much a TTL varies, as a number.
func jitterOf(r *Read) string {
	jitter := float64(r.Most-r.Least) / float64(r.Most+r.Least)
	return strconv.FormatFloat(math.Floor(jitter*1e6)/1e6, 'g', -1, 64)
}

// pascalCase returns a name of the map in PascalCase: product_id becomes ProductId.
func pascalCase(name string) string {
	var b strings.Builder
	for word := range words(name) {
		if word == strings.ToUpper(word) {
			word = strings.ToLower(word)
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// words returns the words of a name of the map. The names of entities may have - . and : too.
func words(name string) iter.Seq[string] {
	return strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune("_-.:", r) })
}

// camelCase returns a name of the map in camelCase: product_id becomes productId, and ID becomes id.
func camelCase(name string) string {
	name = pascalCase(name)
	return strings.ToLower(name[:min(1, len(name))]) + name[min(1, len(name)):]
}

// docComment writes a doc comment like those of JavaScript and PHP: a sentence, the comment of the
// map, and lines with tags.
func (w *codeWriter) docComment(indent, first, more string, tags ...string) {
	first = commentText(first)
	if more == "" && len(tags) == 0 {
		w.printf("\n%s/** %s */\n", indent, first)
		return
	}
	w.printf("\n%s/**\n%s * %s\n", indent, indent, first)
	var lines []string
	for line := range strings.Lines(more) {
		lines = append(lines, strings.TrimSpace(line))
	}
	for _, part := range [][]string{lines, tags} {
		if len(part) > 0 {
			w.printf("%s *\n", indent)
		}
		for _, line := range part {
			w.printf("%s * %s\n", indent, commentText(line))
		}
	}
	w.printf("%s */\n", indent)
}

// commentText returns text that cannot end a comment.
func commentText(text string) string { return strings.ReplaceAll(text, "*/", `*\/`) }

// locals returns the names of the arguments of a read, in the order of its holes.
func (w *codeWriter) locals(r *Read, nameOf func(string) string) []string {
	names, taken := make([]string, len(r.Holes)), map[string]string{}
	for i, h := range r.Holes {
		names[i] = nameOf(h.Name)
		if other, twice := taken[names[i]]; twice {
			w.fail("the values %s and %s of the read %s both have the %s name %s; rename one of them in the map", other, h.Name, r.Name, w.language, names[i])
		}
		taken[names[i]] = h.Name
	}
	return names
}

// templates returns the key of a read and its tags with the values of vars that do not depend on the
// environment, and reports whether other vars remain.
func (w *codeWriter) templates(r *Read) (all []Template, hasVar bool) {
	for _, t := range append([]Template{r.Key}, r.Tags...) {
		t = w.resolved(t)
		all, hasVar = append(all, t), hasVar || t.hasVar()
	}
	return all, hasVar
}

// readComment returns the first sentences about a read, for clients that have not all policies.
func readComment(r *Read) string {
	notes := ""
	if r.SlidingMax > 0 || r.EarlyRefresh > 0 {
		notes = " This client does not support sliding and early_refresh."
	}
	return fmt.Sprintf("Returns the read %s, with the key %s.%s", r.Name, r.Key, notes)
}

// policyOf returns the policy of a read, as fields of JavaScript and arguments of PHP. Times are
// milliseconds.
func policyOf(r *Read) (fields []string) {
	add := func(name string, ms int64) {
		if ms != 0 {
			fields = append(fields, name+": "+number(max(ms, 0))) // 0: off
		}
	}
	add("ttl", (r.Least+r.Most)/2)
	if r.Most > r.Least {
		fields = append(fields, "jitter: "+jitterOf(r))
	}
	add("stale", r.Stale)
	add("staleOnError", r.StaleOnError)
	add("negative", r.Negative)
	return fields
}

// number returns a number with underscores between thousands.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && n >= 10_000; i -= 3 {
		text = text[:i] + "_" + text[i:]
	}
	return text
}
