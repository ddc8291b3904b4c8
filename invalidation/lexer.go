package invalidation

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A lexer reads the map before the YAML parser does. It looks for the mistakes at which the parser would stop, or
// which it would take for something else: templates without quotes, tabs, quotes and brackets that are not closed. It
// reports each and mends it in memory, so that the faults behind it are found in the same run. It knows as much YAML
// as that takes; whatever it does not understand is left to the parser.
type lexer struct {
	src    string
	pos    int
	line   int // of pos, from 1
	start  int // offset of that line
	report *report
	edits  []edit
	// doubtful are places whose content was mended by guessing: nothing more is to be said about them.
	doubtful map[place]bool
	tabs     bool
	// awaits is set behind a line that ends with a key or a dash: the next one may be its value.
	awaits bool
}

// An edit replaces src[from:to], which lies within one line.
type edit struct {
	line     int
	from, to int
	with     string
}

func (l *lexer) run() {
	l.awaits = true
	for l.line = 1; l.pos < len(l.src); {
		l.indent()
		if l.start == l.pos && l.marker() {
			l.pos += 3
		}
		l.blockLine()
	}
}

// marker tells whether a document marker starts here.
func (l *lexer) marker() bool {
	rest := l.src[l.pos:]
	return (strings.HasPrefix(rest, "---") || strings.HasPrefix(rest, "...")) && isBlank(l.at(3))
}

// at returns the byte n after pos, or 0 at the end.
func (l *lexer) at(n int) byte {
	if l.pos+n >= len(l.src) {
		return 0
	}
	return l.src[l.pos+n]
}

// place returns the place of an offset in the line of pos.
func (l *lexer) place(offset int) place {
	return place{l.line, utf8.RuneCountInString(l.src[l.start:offset]) + 1}
}

// lineEnd returns the offset at which the line of pos ends.
func (l *lexer) lineEnd() int {
	end := len(l.src)
	if i := strings.IndexByte(l.src[l.pos:], '\n'); i >= 0 {
		end = l.pos + i
	}
	if end > l.pos && l.src[end-1] == '\r' {
		end--
	}
	return end
}

func (l *lexer) nextLine() {
	i := strings.IndexByte(l.src[l.pos:], '\n')
	if i < 0 {
		l.pos = len(l.src)
		return
	}
	l.pos += i + 1
	l.start = l.pos
	l.line++
}

func (l *lexer) skipBlanks() {
	for c := l.at(0); c == ' ' || c == '\t' || c == '\r'; c = l.at(0) {
		l.pos++
	}
}

// ended tells whether nothing but a comment is left in the line.
func (l *lexer) ended() bool {
	c := l.at(0)
	return c == 0 || c == '\n' || c == '#' && (l.pos == l.start || isBlank(l.src[l.pos-1]))
}

// indent goes to the first character of the line and mends tabs before it.
func (l *lexer) indent() {
	l.skipBlanks()
	if l.ended() {
		return
	}
	white := l.src[l.start:l.pos]
	if i := strings.IndexByte(white, '\t'); i >= 0 {
		l.tabs = true
		l.report.add(l.place(l.start+i), l.src[l.pos:l.lineEnd()],
			"a tab in the indentation, where YAML allows only spaces", "indent with spaces")
		l.edit(l.start, l.pos, strings.ReplaceAll(white, "\t", "  "))
	}
}

func (l *lexer) edit(from, to int, with string) {
	l.edits = append(l.edits, edit{line: l.line, from: from, to: to, with: with})
}

// valueEnd returns where an unquoted value that starts at pos ends: at a comment or at the end of the line.
func (l *lexer) valueEnd() int {
	value := l.src[l.pos:l.lineEnd()]
	if i := strings.Index(value, " #"); i >= 0 {
		value = value[:i]
	}
	return l.pos + len(strings.TrimRight(value, " \t\r"))
}

// unquoted reports src[pos:end], quotes it in memory and goes behind it.
func (l *lexer) unquoted(end int, problem, cure string) {
	text := l.src[l.pos:end]
	l.report.add(l.place(l.pos), text, problem, cure+": "+strconv.Quote(text))
	l.quote(end)
}

func (l *lexer) quote(end int) {
	l.edit(l.pos, end, "'"+strings.ReplaceAll(l.src[l.pos:end], "'", "''")+"'")
	l.pos = end
}

func (l *lexer) unquotedTemplate(end int) {
	l.unquoted(end, "an unquoted template: YAML takes { for the start of a mapping",
		"put the template in double quotes")
}

// star deals with an unquoted text that starts with *, which YAML takes for an alias.
func (l *lexer) star(end int) {
	if strings.ContainsAny(l.src[l.pos+1:end], "*?:{") || end == l.pos+1 {
		l.unquoted(end, "an unquoted text that starts with *: YAML takes it for an alias", "put it in double quotes")
		return
	}
	l.doubtful[l.place(l.pos)] = true
	l.report.add(l.place(l.pos), l.src[l.pos:end], problemAlias, cureAlias)
	l.quote(end)
}

// group returns the length of a brace group such as {name}, {{{name}}} or ${NAME:-x} at offset, which no mapping of
// the map's grammar looks like, or 0.
func (l *lexer) group(offset int) int {
	depth := 0
	for i := offset; i < len(l.src); i++ {
		switch c := l.src[i]; c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				if i == offset+1 {
					return 0
				}
				return i + 1 - offset
			}
		case ':':
			if offset == 0 || l.src[offset-1] != '$' {
				return 0
			}
		case ' ', '\t', '\r', '\n', '"', '\'', ',', '[', ']':
			return 0
		}
	}
	return 0
}

func isBlank(c byte) bool { return c == 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' }
