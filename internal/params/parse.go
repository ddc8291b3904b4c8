package params

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	errNoObject  = errors.New("the parameters must be a JSON object of scalars and lists of scalars")
	errUTF8      = errors.New("the parameters are not valid UTF-8")
	errTrailing  = errors.New("something follows the JSON object")
	errDuplicate = errors.New("the name is given twice")
)

// manyNames is where finding duplicate names pair by pair becomes slower than a map.
const manyNames = 16

// manyValues is up to how many values are expected from the look of the text.
const manyValues = 64

// Parse decodes the params column of a row: a JSON object whose values are scalars or lists of
// scalars. Strings are decoded exactly, numbers, true and false keep their source text, null means
// "not given", in a list too. Empty src and null mean no parameters. The error is an *Error. The
// values share one copy of src. The time is proportional to len(src), however deep the input nests.
func Parse(src []byte) (Params, error) { return parse(src, false) }

// ParseNested is Parse for a row that was written already: a value that is nested is a parameter
// without Values, whose Err says so. Within it the JSON must be whole too, and no object may have a
// name twice.
func ParseNested(src []byte) (Params, error) { return parse(src, true) }

func parse(src []byte, nested bool) (Params, error) {
	if len(src) == 0 {
		return nil, nil
	}
	if !utf8.Valid(src) {
		return nil, &Error{Err: errUTF8}
	}
	p := parser{scanner: scanner{src: string(src)}, nested: nested}
	switch p.peek() {
	case 'n':
		if err := p.word("null"); err != nil {
			return nil, &Error{Err: err}
		}
	case '{':
		if err := p.object(); err != nil {
			return nil, err
		}
	case 0:
		return nil, &Error{Err: errEnd}
	default:
		return nil, &Error{Err: errNoObject}
	}
	if p.peek(); p.pos < len(p.src) {
		return nil, &Error{Err: errTrailing}
	}
	return p.params, nil
}

type parser struct {
	scanner
	params Params
	// values back all Param.Values.
	values []string
	// seen has every name once there are many, few has them before that. A null is seen, though it
	// is not a parameter.
	seen  map[string]struct{}
	few   [manyNames]string
	names int
	nulls int // so far
	// nested is set where nested values are parameters too.
	nested bool
}

func (p *parser) object() error {
	p.pos++
	if p.peek() == '}' {
		p.pos++
		return nil
	}
	p.params = make(Params, 0, min(strings.Count(p.src, ":"), manyNames))
	p.values = make([]string, 0, min(strings.Count(p.src, ",")+1, manyValues))
	for {
		if err := p.member(); err != nil {
			return err
		}
		if p.peek() == '}' {
			p.pos++
			return nil
		}
		if err := p.expect(','); err != nil {
			return &Error{Err: err}
		}
	}
}

func (p *parser) member() error {
	name, err := p.text()
	if err != nil {
		return &Error{Err: err}
	}
	if !p.isNew(name) {
		return &Error{Name: name, Err: errDuplicate}
	}
	if err := p.expect(':'); err != nil {
		return &Error{Name: name, Err: err}
	}
	start, nulls := len(p.values), p.nulls
	list := p.peek() == '['
	at := p.pos
	if list {
		err = p.list()
	} else {
		err = p.scalar()
	}
	if err != nil {
		return p.keepNested(Param{Name: name, List: list}, at, start, err)
	}
	if end := len(p.values); list || end > start {
		p.params = append(p.params, Param{Name: name, Values: p.values[start:end:end], List: list, gaps: list && p.nulls > nulls})
	}
	return nil
}

// keepNested keeps a parameter if it is nested and may be, and returns err otherwise, for which its
// value could not be decoded. That begins at byte at, and what was decoded of it at
// p.values[start].
func (p *parser) keepNested(param Param, at, start int, err error) error {
	param.nesting = nestingOf(err)
	if param.nesting == flat || !p.nested {
		return &Error{Name: param.Name, Err: err}
	}
	p.values = p.values[:start]
	if p.pos, err = skipNested(p.src, at); err != nil {
		return &Error{Name: param.Name, Err: err}
	}
	p.params = append(p.params, param)
	return nil
}

// isNew notes name and reports whether it is new.
func (p *parser) isNew(name string) bool {
	if p.seen != nil {
		if _, ok := p.seen[name]; ok {
			return false
		}
		p.seen[name] = struct{}{}
		return true
	}
	few := p.few[:p.names]
	if slices.Contains(few, name) {
		return false
	}
	if len(few) < manyNames {
		p.few[p.names] = name
		p.names++
		return true
	}
	p.seen = make(map[string]struct{}, 4*manyNames)
	for _, other := range few {
		p.seen[other] = struct{}{}
	}
	p.seen[name] = struct{}{}
	return true
}

func (p *parser) list() error {
	p.pos++
	if p.peek() == ']' {
		p.pos++
		return nil
	}
	for {
		if p.peek() == '[' {
			return errListIn
		}
		if err := p.scalar(); err != nil {
			return err
		}
		if p.peek() == ']' {
			p.pos++
			return nil
		}
		if err := p.expect(','); err != nil {
			return err
		}
	}
}

// scalar appends one value, or none for null.
func (p *parser) scalar() error {
	var value string
	var err error
	switch c := p.peek(); {
	case c == '"':
		value, err = p.text()
	case c == '-' || c >= '0' && c <= '9':
		value, err = p.number()
	case c == 't':
		value, err = "true", p.word("true")
	case c == 'f':
		value, err = "false", p.word("false")
	case c == 'n':
		p.nulls++
		return p.word("null")
	case c == '{':
		return errObjectIn
	default:
		return p.unexpected("a value")
	}
	if err != nil {
		return fmt.Errorf("decode value: %w", err)
	}
	p.values = append(p.values, value)
	return nil
}
