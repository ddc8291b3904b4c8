package params

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	name, err := p.stringValue()
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
	if !p.nested || err != errObjectIn && err != errListIn {
		return &Error{Name: param.Name, Err: err}
	}
	param.nesting = err
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
		value, err = p.stringValue()
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

// An Error says why a text cannot be parameters.
type Error struct {
	// Name is the parameter at fault. It is empty where no single parameter is.
	Name string
	// Err says what is wrong.
	Err error
}

// Error returns the name, if there is one, and the cause on one line.
func (e *Error) Error() string {
	if e.Name == "" {
		return e.Err.Error()
	}
	return strconv.Quote(e.Name) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A Param is one parameter of a row.
type Param struct {
	Name string
	// Values are text, exactly as written: JSON numbers keep their source text. A scalar has one
	// value, a list any number, zero included.
	Values []string
	// List tells a list of one from a scalar.
	List bool

	nesting error // what makes the value more than a list of scalars, or nil
	gaps    bool
}

// Err returns why no template can use the value, or nil: it is an object, or a list with an object
// or another list in it. It has no Values then.
func (p Param) Err() error { return p.nesting }

// Gaps reports whether the list that was written has a null, which is no value: those behind it
// have moved up.
func (p Param) Gaps() bool { return p.gaps }

// Params are the decoded parameters of a row, in the order written. Names are unique.
type Params []Param

// Get returns the parameter called name.
func (p Params) Get(name string) (Param, bool) {
	i := slices.IndexFunc(p, func(one Param) bool { return one.Name == name })
	if i < 0 {
		return Param{}, false
	}
	return p[i], true
}

var (
	errObjectIn      = errors.New("an object is neither a scalar nor a list of scalars")
	errListIn        = errors.New("a list within a list is not a scalar")
	errDuplicateName = errors.New("an object in it has a name twice")
)

// skipNested returns where the value ends that begins at pos in src, however deep it nests.
func skipNested(src string, pos int) (int, error) {
	n := nest{parser: parser{scanner: scanner{src: src, pos: pos}}, names: map[memberName]struct{}{}}
	for {
		inside, err := n.openValue()
		if err != nil {
			return 0, err
		}
		if !inside {
			if n.closeOver(); len(n.open) == 0 {
				return n.pos, nil
			}
			if err := n.expect(','); err != nil {
				return 0, err
			}
		}
		if err := n.member(); err != nil {
			return 0, err
		}
	}
}

// A nest is a nested value that is being read, without recursion.
type nest struct {
	parser
	open  []int // where the lists and objects begin that are not closed yet
	names map[memberName]struct{}
}

// A memberName is a name in the object that begins at a byte.
type memberName struct {
	object int
	name   string
}

// openValue consumes a scalar, or the beginning of a list or an object, and reports whether that
// has anything in it.
func (n *nest) openValue() (bool, error) {
	if c := n.peek(); c != '[' && c != '{' {
		err := n.scalar()
		n.values = n.values[:0]
		return false, err
	}
	n.open = append(n.open, n.pos)
	n.pos++
	return n.peek() != n.closing(), nil
}

// closeOver consumes the ends of the lists and objects that are over.
func (n *nest) closeOver() {
	for len(n.open) > 0 && n.peek() == n.closing() {
		n.pos++
		n.open = n.open[:len(n.open)-1]
	}
}

// closing returns what ends the innermost list or object.
func (n *nest) closing() byte {
	if n.src[n.open[len(n.open)-1]] == '{' {
		return '}'
	}
	return ']'
}

// member consumes the name of the next value, which it has in an object.
func (n *nest) member() error {
	if n.closing() == ']' {
		return nil
	}
	text, err := n.stringValue()
	if err != nil {
		return err
	}
	name := memberName{n.open[len(n.open)-1], text}
	if _, twice := n.names[name]; twice {
		return errDuplicateName
	}
	n.names[name] = struct{}{}
	return n.expect(':')
}
