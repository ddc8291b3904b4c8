package invalidation

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A source is the text of a map, mended so that YAML can be parsed as far as possible.
type source struct {
	lines []string // as written
	text  string   // what is parsed: line by line the same as written, but for the edits
	// shifts say, by line, by how much edits moved what follows them.
	shifts   map[int][]shift
	doubtful map[place]bool
	// partial is set where something could not be read at all: what seems to be missing may only be unread.
	partial bool
	// unread is what was left out of the text.
	unread strings.Builder
	// probes counts the attempts to find where syntax errors begin, and parsed the bytes that were parsed again for them.
	probes, parsed int
	// tabs is set where the indentation was guessed: a syntax error is then most likely a wrong guess.
	tabs bool
}

// A shift moves everything from column on, in the mended text, by the number of characters inserted before it.
type shift struct{ column, by int }

// readSource reports what makes src no YAML and mends it in memory.
func readSource(src []byte, r *report) *source {
	text := strings.TrimPrefix(string(src), "\ufeff")
	s := &source{shifts: map[int][]shift{}, doubtful: map[place]bool{}}
	text = s.mendCharacters(text, r)
	s.lines = strings.Split(text, "\n")
	l := &lexer{src: text, report: r, doubtful: s.doubtful}
	l.run()
	s.tabs = l.tabs
	s.partial = s.partial || l.tabs || len(s.doubtful) > 0
	s.text = s.apply(text, l.edits)
	return s
}

// mendCharacters reports and replaces bytes that YAML does not allow. The first one of a line is reported: a file in
// another encoding, or one that is no text, has a great many, and one cure.
func (s *source) mendCharacters(text string, r *report) string {
	if strings.IndexFunc(text, isForbidden) < 0 {
		return text
	}
	var b strings.Builder
	at, reported := place{1, 0}, 0
	for i, c := range text {
		at.column++
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case (c == utf8.RuneError && size == 1 || isForbidden(c) && c != utf8.RuneError) && reported == at.line:
		case c == utf8.RuneError && size == 1:
			r.add(at, text[i:i+1], "not valid UTF-8", "save the file as UTF-8")
		case isForbidden(c) && c != utf8.RuneError:
			r.add(at, string(c), "a control character, which YAML does not allow", `remove it, or write it as an escape (such as "\n") in double quotes`)
		default:
			b.WriteString(text[i : i+size])
			if c == '\n' {
				at = place{at.line + 1, 0}
			}
			continue
		}
		s.partial, reported = true, at.line
		b.WriteByte('_')
	}
	return b.String()
}

// isForbidden tells whether YAML allows c nowhere; U+FFFD is suspected.
func isForbidden(c rune) bool {
	switch {
	case c == '\t' || c == '\n' || c == '\r' || c == 0x85:
		return false
	case c == utf8.RuneError || c == 0xFEFF || c == 0xFFFE || c == 0xFFFF:
		return true
	}
	return c < 0x20 || c >= 0x7f && c < 0xa0
}

// apply carries out the edits and notes the shifts.
func (s *source) apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	done, line, lineStart := 0, 0, 0
	for _, e := range edits {
		b.WriteString(text[done:e.from])
		if e.line != line {
			line, lineStart = e.line, b.Len()-(e.from-strings.LastIndexByte(text[:e.from], '\n')-1)
		}
		b.WriteString(e.with)
		done = e.to
		by := utf8.RuneCountInString(e.with) - utf8.RuneCountInString(text[e.from:e.to])
		column := utf8.RuneCountInString(b.String()[lineStart:]) + 1
		s.shifts[e.line] = append(s.shifts[e.line], shift{column, by})
	}
	b.WriteString(text[done:])
	return b.String()
}

// place returns where in the file the mended text's line and column are.
func (s *source) place(line, column int) place {
	shifted := column
	for _, sh := range s.shifts[line] {
		if shifted >= sh.column {
			column -= sh.by
		}
	}
	return place{max(line, 1), max(column, 1)}
}
