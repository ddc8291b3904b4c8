package invalidation

import (
	"strings"
)

// A segment is a piece of a template: literal text, or a name where name is not empty.
type segment struct {
	text string
	name string
}

// A Segment is literal text of a template, or a name in it.
type Segment struct{ Text, Name string }

// SplitTemplate splits a valid template at its names.
func SplitTemplate(source string) (all []Segment) {
	segments, _ := parseTemplate(source)
	for _, s := range segments {
		all = append(all, Segment{s.text, s.name})
	}
	return all
}

// A templateError describes the error of a template.
type templateError struct{ text, problem, cure string }

const cureBraces = `write {name} for a variable, {{ and }} for literal braces`

// parseTemplate splits a template at its names. {name} is a variable, {{ and }} are literal braces.
// All errors are returned; with an error the segments are those that could be read.
func parseTemplate(source string) (all []segment, errs []templateError) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			all = append(all, segment{text: literal.String()})
			literal.Reset()
		}
	}
	fail := func(text, problem, cure string) { errs = append(errs, templateError{text, problem, cure}) }
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c != '{' && c != '}':
			literal.WriteByte(c)
		case strings.HasPrefix(source[i+1:], source[i:i+1]):
			literal.WriteByte(c)
			i++
		case c == '}':
			fail(source, "a closing brace without an opening one", cureBraces)
		default:
			end := strings.IndexAny(source[i+1:], "{}")
			if end < 0 || source[i+1+end] == '{' {
				fail(source, "a brace is not closed", cureBraces)
				continue
			}
			name := source[i+1 : i+1+end]
			if !isName(name) {
				fail(source[i:i+end+2], "not a name", "a name has letters, digits and _, and does not start with a digit; "+cureBraces)
			} else {
				flush()
				all = append(all, segment{name: name})
			}
			i += end + 1
		}
	}
	flush()
	return all, errs
}

// isName reports whether s can name a variable, a parameter or an enumeration.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// isEntityName reports whether s can name an entity: as a name, with - . and : too, and at most 64
// bytes.
func isEntityName(s string) bool {
	for i := range len(s) {
		if strings.IndexByte("-.:", s[i]) < 0 && !isName("_"+s[i:i+1]) {
			return false
		}
	}
	return s != "" && len(s) <= maxEntityName
}

// maxEntityName is how many bytes the name of an entity may have.
const maxEntityName = 64
