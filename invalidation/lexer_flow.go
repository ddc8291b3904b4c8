package invalidation

import (
	"strings"
	"unicode/utf8"
)

// flow goes behind the bracket that is closed for the one at pos. If it is not closed, it is reported, closed in
// memory, and false is returned, with pos at the start of a line.
func (l *lexer) flow() bool {
	f := flowState{lexer: l, margin: l.pos - l.start - len(strings.TrimLeft(l.src[l.start:l.pos], " "))}
	f.open()
	for len(f.opened) > 0 {
		l.skipBlanks()
		switch {
		case l.pos >= len(l.src):
			f.closeAll()
			return false
		case l.ended():
			l.nextLine()
			if l.startsEntry(l.pos, f.margin) {
				f.closeAll()
				return false
			}
		default:
			f.token()
			f.end, f.endLine = l.pos, l.line
		}
	}
	return true
}

// flowState is what is known inside brackets.
type flowState struct {
	*lexer
	opened []opening
	// margin is the indentation of the line in which the first bracket was opened.
	margin int
	// complete is set behind an entry that only a comma, a colon or a closing bracket may follow.
	complete bool
	// end is the offset behind the last token, in line endLine.
	end, endLine int
}

// An opening is an open bracket.
type opening struct {
	bracket byte
	offset  int
	line    int
	start   int // offset of that line
}

func (f *flowState) open() {
	f.opened = append(f.opened, opening{f.at(0), f.pos, f.line, f.start})
	f.pos++
	f.end, f.endLine = f.pos, f.line
	f.complete = false
}

func (f *flowState) token() {
	l := f.lexer
	c := l.at(0)
	switch {
	case c == ']' || c == '}':
		f.opened = f.opened[:len(f.opened)-1]
		f.complete = true
		l.pos++
		return
	case c == ',', c == ':' && (f.complete || isFlowEnd(l.at(1))):
		f.complete = false
		l.pos++
		return
	case f.complete:
		l.report.add(l.place(l.pos), l.src[l.pos:l.valueEnd()], "a comma is missing before this entry", "add the comma")
		l.edit(l.pos, l.pos, ",")
		f.complete = false
	}
	switch {
	case c == '"' || c == '\'':
		l.quoted(string(f.closers()), f.margin)
		f.complete = true
	case (c == '[' || c == '{') && l.group(l.pos) == 0:
		f.open()
	case c == '*':
		l.star(l.plainEnd())
	case c == '&' || c == '!':
		for !isFlowEnd(l.at(0)) {
			l.pos++
		}
	default:
		f.plain()
	}
}

// plain reads an unquoted text and quotes it if it is a template.
func (f *flowState) plain() {
	end := f.plainEnd()
	if strings.IndexByte(f.src[f.pos:end], '{') >= 0 {
		f.unquotedTemplate(end)
		f.complete = true
		return
	}
	f.pos = end
}

// plainEnd returns where the unquoted text at pos ends. It is behind pos.
func (l *lexer) plainEnd() int {
	i, end := l.pos, l.lineEnd()
	for i < end {
		c := l.src[i]
		if c == '{' {
			n := l.group(i)
			if n == 0 {
				break
			}
			i += n
			continue
		}
		next := byte(0)
		if i+1 < end {
			next = l.src[i+1]
		}
		if i > l.pos && (strings.IndexByte(",[]}", c) >= 0 || c == ':' && (isBlank(next) || strings.IndexByte(",]}", next) >= 0) || c == '#' && isBlank(l.src[i-1])) {
			break
		}
		i++
	}
	i = max(i, l.pos+1)
	return l.pos + max(1, len(strings.TrimRight(l.src[l.pos:i], " \t\r")))
}

// closers are the closing brackets that are awaited, the innermost first.
func (f *flowState) closers() []byte {
	var all []byte
	for i := len(f.opened) - 1; i >= 0; i-- {
		if f.opened[i].bracket == '{' {
			all = append(all, '}')
		} else {
			all = append(all, ']')
		}
	}
	return all
}

// closeAll reports the brackets that are still open and closes them behind the last token.
func (f *flowState) closeAll() {
	closers := f.closers()
	for i, o := range f.opened {
		at := place{o.line, utf8.RuneCountInString(f.src[o.start:o.offset]) + 1}
		f.report.add(at, string(o.bracket), "the bracket is not closed", "add the closing "+string(closers[len(closers)-1-i]))
	}
	f.edits = append(f.edits, edit{line: f.endLine, from: f.end, to: f.end, with: string(closers)})
}

func isFlowEnd(c byte) bool { return isBlank(c) || strings.IndexByte(",[]{}", c) >= 0 }
