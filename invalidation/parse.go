package invalidation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Parse reads, checks and compiles a map. The argument file names it in faults; nothing is read
// from there. lookupEnv gives the values of ${NAME} under vars, as os.LookupEnv does; nil knows
// none. The error is of type Faults: the first place that is not YAML, or else every fault of the
// map, in file order.
func Parse(file string, src []byte, lookupEnv func(string) (string, bool)) (*Map, error) {
	if lookupEnv == nil {
		lookupEnv = func(string) (string, bool) { return "", false }
	}
	return parse(file, src, lookupEnv, false)
}

// ParseNames is like Parse, for callers that use the names of the map and not its keys: every
// environment variable has some valid value.
func ParseNames(file string, src []byte) (*Map, error) {
	return parse(file, src, func(string) (string, bool) { return "", false }, true)
}

func parse(file string, src []byte, env func(string) (string, bool), anyEnv bool) (*Map, error) {
	r := &report{file: file}
	root, ok := parseYAML(string(src), r)
	if ok && (root == nil || root.Kind == yaml.ScalarNode && root.Value == "") {
		r.addFault(place{1, 1}, "", "the map is empty", "write "+exampleRoot)
		ok = false
	}
	if !ok {
		return nil, Faults(inFileOrder(r.faults))
	}
	later := &report{file: file}
	g := &globals{scalars: &scalars{report: r, env: env, anyEnv: anyEnv}, doc: decodeDocument(&decoder{r}, root)}
	c := &compiler{globals: g, lookups: &lookupReader{globals: g, later: later, circles: map[*Lookup]bool{}}}
	m := c.compile()
	if len(r.faults) > 0 {
		r.faults = append(r.faults, later.faults...)
		return nil, Faults(inFileOrder(r.faults))
	}
	m.deprecations = slices.Clip(inFileOrder(later.faults))
	advice := &report{file: file}
	(&adviser{report: advice, all: c, captures: m.captures}).warn()
	open := &report{file: file}
	(&coverage{report: open, advice: advice, m: m, steps: maxCoverSteps}).reportGaps(c.reads)
	m.uncovered = slices.Clip(inFileOrder(open.faults))
	m.warnings = slices.Clip(inFileOrder(advice.faults))
	m.version, m.reads.version = m.fingerprint(), m.reads.fingerprint()
	return m, nil
}

// maxMapBytes bounds the file of a map.
const maxMapBytes = 32 << 20

// ReadFile reads the file of a map: a regular file, or a symbolic link to one, of at most 32 MiB.
// It never blocks: it refuses a pipe.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read map: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read map: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read map: %s is not a regular file (%s); write the map to one and name that", path, info.Mode())
	}
	src, err := io.ReadAll(io.LimitReader(f, maxMapBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read map: %w", err)
	case len(src) > maxMapBytes:
		return nil, fmt.Errorf("read map: %s has more than %d MiB; is it a map?", path, maxMapBytes>>20)
	}
	return src, nil
}

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
		r.addFault(place{next.Line, next.Column}, "---", "a second document", "keep one document: remove this line and what follows it")
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
		if m := findMistake(line, &flow); m != nil {
			r.addFault(place{n, utf8.RuneCountInString(line[:m.at]) + 1}, strings.TrimRight(m.text, " \t"), m.problem, m.cure)
			return
		}
	}
	line := strings.TrimRight(lines[first-1], " \t\r\n")
	text = strings.TrimLeft(line, " \t")
	r.addFault(place{first, utf8.RuneCountInString(line) - utf8.RuneCountInString(text) + 1}, text,
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

// A mistake is a common error of syntax, with its fix. The text begins at a byte of its line.
type mistake struct {
	at                  int
	text, problem, cure string
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

// findMistake returns the first known mistake of a line, or nil. It updates flow, the number of open
// brackets.
func findMistake(line string, flow *int) *mistake {
	if m := findBadByte(line); m != nil {
		return m
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if i := strings.IndexByte(indent, '\t'); i >= 0 {
		return &mistake{i, line[i:], "a tab in the indentation, where YAML allows only spaces", "indent with spaces"}
	}
	begins := true // a value may begin here
	for i := len(indent); i < len(line); i++ {
		switch c := line[i]; c {
		case '#':
			if i == 0 || line[i-1] == ' ' {
				return nil
			}
			begins = false
		case ' ':
		case '-', ':', '?':
			begins = i+1 == len(line) || line[i+1] == ' '
		default:
			if begins {
				if m := mistakeOf(line[i:], *flow > 0); m != nil {
					m.at = i
					return m
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
	return nil
}

// findBadByte returns the first character of a line that YAML allows nowhere, or nil.
func findBadByte(line string) *mistake {
	for i, c := range line {
		_, size := utf8.DecodeRuneInString(line[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return &mistake{i, line[i : i+1], "not valid UTF-8", "save the file as UTF-8"}
		case c < 0x20 && c != '\t' || c >= 0x7f && c < 0xa0 && c != 0x85:
			return &mistake{i, line[i : i+size], "a control character, which YAML does not allow", `remove it, or write it as an escape (such as "\n") in double quotes`}
		}
	}
	return nil
}

// mistakeOf returns the mistake at the start of a value, or nil.
func mistakeOf(value string, flow bool) *mistake {
	problem, cure := "", "put it in double quotes"
	switch c := value[0]; {
	case (c == '"' || c == '\'') && !quotedText.MatchString(value):
		return &mistake{text: value, problem: "the quote is not closed", cure: "add the closing quote"}
	case (c == '{' || c == '$') && unquotedTemplate.MatchString(value):
		problem, cure = "an unquoted template: YAML takes { for the start of a mapping", "put the template in double quotes"
	case strings.TrimLeft(value, curlyQuotes) != value:
		problem, cure = "curly quotes, which YAML takes for text", "write straight quotes"
	case flow && templateInList.MatchString(value):
		problem = "an unquoted template in brackets: YAML takes { for the start of a mapping"
	case c == '*':
		problem = "an unquoted text that starts with *: YAML takes it for an alias"
	case c == '@' || c == '`' || c == '%':
		problem = "an unquoted value cannot start with " + string(c)
	default:
		return nil
	}
	text := strings.TrimRight(value[:valueEnd(value, flow)], " \t")
	return &mistake{text: text, problem: problem, cure: cure + ": " + strconv.Quote(strings.Trim(text, curlyQuotes))}
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
