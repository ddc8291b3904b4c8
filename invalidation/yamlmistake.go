package invalidation

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A mistake is a common error of syntax, with its fix.
type mistake struct {
	problem, cure string
	quote         bool // the cure is followed by the text in quotes
	length        int  // in bytes, of the text
}

func (m *mistake) cureOf(text string) string {
	if m.quote {
		return m.cure + ": " + strconv.Quote(strings.Trim(text, curlyQuotes))
	}
	return m.cure
}

// curlyQuotes are the quotes that word processors write.
const curlyQuotes = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb"

var (
	// templateInList matches text with a template behind it, as YAML reads it between brackets.
	templateInList = regexp.MustCompile(`^[^][{},"' #]+\{+[A-Za-z_][A-Za-z0-9_]*\}`)
	// unquotedTemplate matches a template at the start of a value, such as {name}, {{{name}}} or
	// ${NAME:-x}.
	unquotedTemplate = regexp.MustCompile(`^\$?\{+[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`)
	// quotedText matches a quoted text that ends in its line.
	quotedText = regexp.MustCompile(`^("([^"\\]|\\.)*"|'([^']|'')*')`)
)

// findMistake returns the first known mistake of a line and its place. It updates flow, the number
// of open brackets.
func findMistake(line string, flow *int) (at int, found mistake, ok bool) {
	if at, found, ok = findBadByte(line); ok {
		return at, found, true
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if i := strings.IndexByte(indent, '\t'); i >= 0 {
		return i, mistake{problem: "a tab in the indentation, where YAML allows only spaces", cure: "indent with spaces", length: len(line) - i}, true
	}
	begins := true // a value may begin here
	for i := len(indent); i < len(line); i++ {
		switch c := line[i]; c {
		case '#':
			if i == 0 || line[i-1] == ' ' {
				return 0, mistake{}, false
			}
			begins = false
		case ' ':
		case '-', ':', '?':
			begins = i+1 == len(line) || line[i+1] == ' '
		default:
			if begins {
				if m, ok := mistakeOf(line[i:], *flow > 0); ok {
					return i, m, true
				}
				if quoted := quotedText.FindString(line[i:]); quoted != "" {
					i += len(quoted) - 1
					c = 0
				}
			}
			switch c {
			case '[', '{':
				*flow++
			case ']', '}':
				*flow--
			}
			begins = *flow > 0 && (c == '[' || c == '{' || c == ',')
		}
	}
	return 0, mistake{}, false
}

// findBadByte returns the first character of a line that YAML allows nowhere.
func findBadByte(line string) (at int, found mistake, ok bool) {
	for i, c := range line {
		_, size := utf8.DecodeRuneInString(line[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return i, mistake{problem: "not valid UTF-8", cure: "save the file as UTF-8", length: 1}, true
		case c < 0x20 && c != '\t' || c >= 0x7f && c < 0xa0 && c != 0x85:
			return i, mistake{
				problem: "a control character, which YAML does not allow",
				cure:    `remove it, or write it as an escape (such as "\n") in double quotes`, length: size,
			}, true
		}
	}
	return 0, mistake{}, false
}

// mistakeOf looks at the start of a value.
func mistakeOf(value string, flow bool) (mistake, bool) {
	m := mistake{length: valueEnd(value, flow), quote: true, cure: "put it in double quotes"}
	switch c := value[0]; {
	case (c == '"' || c == '\'') && !quotedText.MatchString(value):
		m.problem, m.cure, m.quote, m.length = "the quote is not closed", "add the closing quote", false, len(value)
	case (c == '{' || c == '$') && unquotedTemplate.MatchString(value):
		m.problem, m.cure = "an unquoted template: YAML takes { for the start of a mapping", "put the template in double quotes"
	case strings.TrimLeft(value, curlyQuotes) != value:
		m.problem, m.cure = "curly quotes, which YAML takes for text", "write straight quotes"
	case flow && templateInList.MatchString(value):
		m.problem = "an unquoted template in brackets: YAML takes { for the start of a mapping"
	case c == '*':
		m.problem = "an unquoted text that starts with *: YAML takes it for an alias"
	case c == '@' || c == '`' || c == '%':
		m.problem = "an unquoted value cannot start with " + string(c)
	}
	return m, m.problem != ""
}

// valueEnd returns where an unquoted value ends: at a comment, and within brackets at a comma or a
// closing bracket that is not its own.
func valueEnd(value string, flow bool) int {
	if i := strings.Index(value, " #"); i >= 0 {
		value = value[:i]
	}
	for i, depth := 0, 0; flow && i < len(value); i++ {
		switch value[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if value[i] == ',' || value[i] == ']' || depth < 0 {
			return i
		}
	}
	return len(value)
}
