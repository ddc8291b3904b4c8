package invalidation

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxSyntaxFaults is after how many syntax errors reading is given up.
	maxSyntaxFaults = 100
	// maxProbes is how many lines are tried, over all syntax errors, to find where they begin.
	maxProbes = 300
	// maxParsed is how many bytes are parsed again, over all syntax errors: of a large map fewer errors are found at once.
	maxParsed = 16 << 20
)

const cureSyntax = "check the indentation, the colons, the brackets and the quotes of this line"

// parse returns the root node, or nil if there is none. At a syntax error the line and what is indented below it are
// left out, so that the faults behind it are found too.
func (s *source) parse(r *report) *yaml.Node {
	for range maxSyntaxFaults {
		root, next, lines, err := parseYAML(s.text)
		if err == nil {
			if next != nil {
				r.add(s.place(next.Line, next.Column), "---", "a second document", "keep one document: remove this line and what follows it")
			}
			return root
		}
		line := s.faultyLine(lines)
		// A line that was mended is likely to be the cause, and its own fault says more.
		if !s.tabs && !r.hasLine(line) {
			s.reportSyntax(r, line, err)
		}
		s.partial = true
		if s.parsed += len(s.text); s.parsed > maxParsed || !s.leaveOut(line) {
			return nil
		}
	}
	return nil
}

// parseYAML returns the roots of the first and of the second document, and at an error the number of lines that were
// read up to it.
func parseYAML(text string) (root, next *yaml.Node, lines int, err error) {
	in := &lineReader{text: text}
	decoder := yaml.NewDecoder(in)
	for i := range 2 {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, in.lines, err
		}
		if i == 1 {
			next = &document
		} else if len(document.Content) > 0 {
			root = document.Content[0]
		}
	}
	return root, next, 0, nil
}

// A lineReader hands out a text line by line. The lines that the parser has asked for when it stops tell where it
// stopped, which its own message does not: that names the start of whatever the line is part of.
type lineReader struct {
	text  string
	lines int
	rest  int // of the line that is being read
}

func (l *lineReader) Read(p []byte) (int, error) {
	if l.text == "" {
		return 0, io.EOF
	}
	if l.rest == 0 {
		l.lines++
		if l.rest = strings.IndexByte(l.text, '\n') + 1; l.rest == 0 {
			l.rest = len(l.text)
		}
	}
	n := copy(p, l.text[:l.rest])
	l.text, l.rest = l.text[n:], l.rest-n
	return n, nil
}

// faultyLine returns the line behind the longest beginning of the text that parses. The parser stopped in line last
// or before it.
func (s *source) faultyLine(last int) int {
	ends := []int{0}
	for i := range len(s.text) {
		if s.text[i] == '\n' {
			ends = append(ends, i+1)
		}
	}
	last = min(max(last, 1), len(ends))
	for n := last - 1; n > 0; n-- {
		s.probes++
		if s.parsed += ends[n]; s.probes > maxProbes || s.parsed > maxParsed {
			return last
		}
		if _, _, _, err := parseYAML(s.text[:ends[n]]); err == nil {
			return n + 1
		}
	}
	return 1
}

// parserPlace matches what the parser says before the problem itself.
var parserPlace = regexp.MustCompile(`^yaml: (line \d+: )?`)

func (s *source) reportSyntax(r *report, line int, err error) {
	text := ""
	if line <= len(s.lines) {
		text = s.lines[line-1]
	}
	trimmed := strings.TrimLeft(text, " \t")
	column := utf8.RuneCountInString(text[:len(text)-len(trimmed)]) + 1
	r.add(place{line, column}, strings.TrimRight(trimmed, " \t\r"),
		"not YAML: "+parserPlace.ReplaceAllString(err.Error(), ""), cureSyntax)
}

// leaveOut blanks a line and the lines that are indented below it. It returns false if nothing was left to blank.
func (s *source) leaveOut(line int) bool {
	lines := strings.Split(s.text, "\n")
	line = min(line, len(lines))
	for line > 1 && strings.TrimSpace(lines[line-1]) == "" {
		line--
	}
	indent := indentOf(lines[line-1])
	if strings.TrimSpace(lines[line-1]) == "" {
		return false
	}
	s.unread.WriteString(lines[line-1] + "\n")
	lines[line-1] = ""
	for i := line; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) != "" && indentOf(lines[i]) <= indent {
			break
		}
		s.unread.WriteString(lines[i] + "\n")
		lines[i] = ""
	}
	s.text = strings.Join(lines, "\n")
	return true
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
