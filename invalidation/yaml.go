package invalidation

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML returns the root node of the text, or nil if it has none. It reports the first place
// that is not YAML, and then returns false: the rest cannot be checked.
func parseYAML(text string, r *report) (root *yaml.Node, ok bool) {
	text = strings.TrimPrefix(text, "\ufeff")
	root, next, last, err := decodeYAML(text)
	switch {
	case err != nil:
		r.addSyntax(text, last, err)
		return nil, false
	case next != nil:
		r.add(place{next.Line, next.Column}, "---", "a second document", "keep one document: remove this line and what follows it")
	}
	return root, true
}

// decodeYAML returns the roots of the first and of the second document, and with an error the line
// at which reading ended.
func decodeYAML(text string) (root, next *yaml.Node, last int, err error) {
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

// A lineReader provides a text line by line. The lines that the parser has requested when it stops
// show where it stopped. The error of the parser does not: it names the start of the enclosing
// block.
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

// addSyntax reports the error between the longest prefix of the text that parses and the line at
// which the parser stopped: the first mistake of a known kind, or else the first line.
func (r *report) addSyntax(text string, last int, err error) {
	lines := strings.SplitAfter(text, "\n")
	last = min(max(last, 1), len(lines))
	first := firstBad(lines[:last])
	flow := 0
	for n := first; n <= last; n++ {
		line := strings.TrimRight(lines[n-1], "\r\n")
		if at, m, found := findMistake(line, &flow); found {
			shown := strings.TrimRight(line[at:at+m.length], " \t")
			r.add(place{n, utf8.RuneCountInString(line[:at]) + 1}, shown, m.problem, m.cureOf(shown))
			return
		}
	}
	line := strings.TrimRight(lines[first-1], " \t\r\n")
	text = strings.TrimLeft(line, " \t")
	r.add(place{first, utf8.RuneCountInString(line) - utf8.RuneCountInString(text) + 1}, text,
		"not YAML: "+parserPlace.ReplaceAllString(err.Error(), ""), "check the indentation, the colons, the brackets and the quotes of this line")
}

// firstBad returns the number of a line such that the lines before it are YAML, and are not with
// it; near the end of lines, where the parser has stopped, if it can. It parses at most twice the
// logarithm of their number.
func firstBad(lines []string) int {
	ends := make([]int, len(lines)+1)
	for i, line := range lines {
		ends[i+1] = ends[i] + len(line)
	}
	text := strings.Join(lines, "")
	good := func(n int) bool {
		_, _, _, err := decodeYAML(text[:ends[n]])
		return err == nil
	}
	low, high := 0, len(lines) // so many lines are YAML, and so many are not
	for back := 1; high-back > 0; back *= 2 {
		if good(high - back) {
			low = high - back
			break
		}
		high -= back
	}
	for high-low > 1 {
		if middle := (low + high) / 2; good(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// parserPlace matches what the parser puts before the problem itself.
var parserPlace = regexp.MustCompile(`^yaml: (line \d+: )?`)
