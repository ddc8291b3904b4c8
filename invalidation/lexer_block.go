package invalidation

import (
	"regexp"
	"strings"
)

// blockLine reads one line outside brackets, or several where a value goes on, and goes to the next line.
func (l *lexer) blockLine() {
	b := blockState{lexer: l, parent: -1}
	for !b.done {
		l.skipBlanks()
		if l.ended() {
			break
		}
		b.token()
	}
	l.awaits = b.parent >= 0 && !b.done
	if !b.inNext {
		l.nextLine()
	}
}

// blockState is what is known about the line that is being read.
type blockState struct {
	*lexer
	// parent is the column, in bytes, of the last dash or key: what belongs to it is indented deeper.
	parent int
	// value is set behind "key:".
	value bool
	done  bool
	// inNext is set where pos is already in the next line to be read.
	inNext bool
}

func (b *blockState) token() {
	l := b.lexer
	switch c := l.at(0); {
	case (c == '-' || c == '?') && isBlank(l.at(1)) && !b.value:
		b.parent = l.pos - l.start
		l.pos++
	case c == '&' || c == '!':
		for !isBlank(l.at(0)) {
			l.pos++
		}
	case c == '|' || c == '>':
		b.skipDeeper()
	case c == '"' || c == '\'':
		b.quotedValue()
	case c == '{' && (l.group(l.pos) > 0 || l.at(1) == '{'):
		l.unquotedTemplate(l.valueEnd())
	case c == '[' || c == '{':
		start := l.pos - l.start
		if !l.flow() {
			b.done, b.inNext = true, true
			return
		}
		b.afterNode(start)
	case c == '*':
		l.star(l.valueEnd())
	case c == '@' || c == '`' || c == '%' && l.pos > l.start:
		l.unquoted(l.valueEnd(), "an unquoted value cannot start with "+string(c), "put it in double quotes")
	default:
		b.plain()
	}
}

// plain reads an unquoted key or value.
func (b *blockState) plain() {
	l := b.lexer
	end := l.valueEnd()
	colon := keyEnd(l.src[l.pos:end])
	switch {
	case colon >= 0 && !b.value:
		b.parent, b.value = l.pos-l.start, true
		l.pos += colon + 1
	case colon >= 0:
		l.unquoted(end, `": " inside an unquoted value: YAML takes it for another mapping`,
			"put the value in double quotes")
	case b.parent >= 0:
		b.skipDeeper()
	default:
		b.done = true
		l.lone(end)
	}
}

// gluedKey matches a key whose colon has no space behind it.
var gluedKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*:[^ \t]`)

// lone deals with a line that is only a text src[pos:end]. That is a value if the line before awaits one and no entry
// follows beside or below it; otherwise its colon was forgotten.
func (l *lexer) lone(end int) {
	next, rest := l.src[l.lineEnd():], ""
	for {
		_, next, _ = strings.Cut(next, "\n")
		rest = strings.TrimLeft(next, " ")
		if trimmed := strings.TrimLeft(rest, "\t\r"); next == "" || trimmed != "" && trimmed[0] != '\n' && trimmed[0] != '#' {
			break
		}
	}
	deeper := next != "" && len(next)-len(rest) >= l.pos-l.start && l.startsEntry(len(l.src)-len(next), len(next))
	if l.awaits && !deeper {
		return
	}
	text := l.src[l.pos:end]
	if glued := gluedKey.FindString(text); glued != "" {
		l.report.add(l.place(l.pos), text, "no space behind the colon", "write the colon and a space")
		l.edit(l.pos+len(glued)-1, l.pos+len(glued)-1, " ")
		return
	}
	l.report.add(l.place(l.pos), text, "neither a list entry nor a name with a colon", "add the colon")
	if !deeper || strings.ContainsAny(text, " \t:\"'") {
		l.doubtful[l.place(l.pos)] = true
	}
	l.edit(end, end, ":")
}

// keyEnd returns the offset of the colon that ends a key, or -1.
func keyEnd(text string) int {
	for i := range len(text) {
		if text[i] == ':' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t') {
			return i
		}
	}
	return -1
}

// quotedValue reads a quoted key or value.
func (b *blockState) quotedValue() {
	l := b.lexer
	start, at := l.pos-l.start, l.place(l.pos)
	closed := l.quoted("", b.parent)
	b.afterNode(start)
	if !closed || b.value && !b.done || l.ended() {
		return
	}
	end := l.valueEnd()
	l.report.add(at, l.src[l.pos:end], "text behind the closing quote",
		`put the whole value in one pair of quotes and write a quote inside it as \"`)
	l.doubtful[at] = true
	l.edit(l.pos, end, "")
	b.done = true
}

// afterNode looks whether the node that began at column start, and has just ended, was a key.
func (b *blockState) afterNode(start int) {
	l := b.lexer
	l.skipBlanks()
	if l.at(0) == ':' && isBlank(l.at(1)) && !b.value {
		b.parent, b.value = start, true
		l.pos++
		return
	}
	b.done = true
}

// skipDeeper skips the rest of the line and the lines that belong to it: a block scalar or an unquoted text that goes
// on.
func (b *blockState) skipDeeper() {
	l := b.lexer
	b.done, b.inNext = true, true
	for l.nextLine(); l.pos < len(l.src); l.nextLine() {
		line := l.src[l.pos:l.lineEnd()]
		text := strings.TrimLeft(line, " ")
		if strings.TrimSpace(text) != "" && len(line)-len(text) <= b.parent {
			return
		}
	}
}

// entryLine matches a line that starts an entry of a block mapping or list.
var entryLine = regexp.MustCompile(`^[ \t]*(- |-?[ \t]*[A-Za-z_][A-Za-z0-9_.-]*:([ \t\r\n]|$))`)

// startsEntry tells whether the line at offset starts an entry no deeper than margin: a quote or bracket that belongs to
// something at that column and is still open there was forgotten.
func (l *lexer) startsEntry(offset, margin int) bool {
	line := l.src[offset:]
	if i := strings.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	return indentOf(line) <= margin && entryLine.MatchString(line)
}

// quoted goes behind a quoted text, which belongs to something at column margin. If it is not closed, it is reported,
// closed in memory at the end of its line, but before those of the awaited closing brackets that end the line, and
// false is returned.
func (l *lexer) quoted(brackets string, margin int) bool {
	open := l.pos
	line, start := l.line, l.start
	for l.pos++; l.pos < len(l.src); l.pos++ {
		switch c := l.src[l.pos]; {
		case c == '\\' && l.src[open] == '"':
			l.pos++
		case c == l.src[open] && c == '\'' && l.at(1) == '\'':
			l.pos++
		case c == l.src[open]:
			l.pos++
			return true
		}
		if l.at(0) == '\n' {
			l.line++
			l.start = l.pos + 1
			if l.startsEntry(l.start, margin) {
				break
			}
		}
	}
	l.pos, l.line, l.start = open, line, start
	text := strings.TrimRight(l.src[open:l.lineEnd()], " \t")
	for n := len(brackets); n > 0; n-- {
		if strings.HasSuffix(text[1:], brackets[:n]) {
			text = text[:len(text)-n]
			break
		}
	}
	l.report.add(l.place(open), text, "the quote is not closed", "add the closing quote")
	l.doubtful[l.place(open)] = true
	l.quote(open + len(text))
	return false
}
