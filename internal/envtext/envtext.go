// Package envtext finds references to environment variables in the texts of a map.
package envtext

import "strings"

// A Reference is ${NAME} or ${NAME:-default} in a text.
type Reference struct {
	Text       string // with ${ and }
	Name       string
	Default    string
	HasDefault bool
}

// Value returns the value of the variable. As in a shell, a default also replaces an empty value.
// ok is false if the variable is not set and there is no default.
func (r Reference) Value(lookup func(string) (string, bool)) (value string, ok bool) {
	value, ok = lookup(r.Name)
	if value == "" && r.HasDefault {
		return r.Default, true
	}
	return value, ok
}

// Replace replaces each reference by the result of value. It returns false if one is not closed.
func Replace(text string, value func(Reference) string) (string, bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		inside, behind, closed := strings.Cut(after, "}")
		if !closed {
			return "", false
		}
		r := Reference{Text: "${" + inside + "}"}
		r.Name, r.Default, r.HasDefault = strings.Cut(inside, ":-")
		b.WriteString(value(r))
		text = behind
	}
}
