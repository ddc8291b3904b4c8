package invalidation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	errParamsObject    = errors.New("the parameters must be a JSON object of scalars and lists of scalars")
	errParamsUTF8      = errors.New("the parameters are not valid UTF-8")
	errParamsTrailing  = errors.New("something follows the JSON object")
	errParamsDuplicate = errors.New("the name is given twice")
	errParamsObjectIn  = errors.New("an object is no scalar and no list of scalars")
	errParamsListIn    = errors.New("a list within a list is no scalar")
)

// manyParams is where finding duplicate names pair by pair becomes slower than a map.
const manyParams = 16

// manyValues is up to how many values are expected from the look of the text.
const manyValues = 64

// ParseParams decodes the params column of a row: a JSON object whose values are scalars or lists of scalars. Strings
// are decoded exactly, numbers, true and false keep their source text, null means "not given", in a list too. Empty
// src and null are no parameters at all. The error is a *RowError with BadParameter. The values share one copy of
// src. The time is proportional to len(src), however deep the input nests.
func ParseParams(src []byte) (Params, error) {
	if len(src) == 0 {
		return nil, nil
	}
	if !utf8.Valid(src) {
		return nil, badParam("", errParamsUTF8)
	}
	p := paramsParser{scanner: scanner{src: string(src)}}
	switch p.peek() {
	case 'n':
		if err := p.word("null"); err != nil {
			return nil, badParam("", err)
		}
	case '{':
		if err := p.object(); err != nil {
			return nil, err
		}
	case 0:
		return nil, badParam("", errJSONEnd)
	default:
		return nil, badParam("", errParamsObject)
	}
	if p.peek(); p.pos < len(p.src) {
		return nil, badParam("", errParamsTrailing)
	}
	return p.params, nil
}

func badParam(name string, err error) *RowError {
	return &RowError{Reason: BadParameter, Param: name, Err: err}
}

type paramsParser struct {
	scanner
	params Params
	// values back all Param.Values.
	values []string
	// seen has every name once there are many, few has them before that. A null is seen, though it is no parameter.
	seen  map[string]struct{}
	few   [manyParams]string
	names int
}

func (p *paramsParser) object() error {
	p.pos++
	if p.peek() == '}' {
		p.pos++
		return nil
	}
	p.params = make(Params, 0, min(strings.Count(p.src, ":"), manyParams))
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
			return badParam("", err)
		}
	}
}

func (p *paramsParser) member() error {
	name, err := p.text()
	if err != nil {
		return badParam("", err)
	}
	if !p.isNew(name) {
		return badParam(name, errParamsDuplicate)
	}
	if err := p.expect(':'); err != nil {
		return badParam(name, err)
	}
	start := len(p.values)
	list := p.peek() == '['
	if list {
		err = p.list()
	} else {
		err = p.scalar()
	}
	if err != nil {
		return badParam(name, err)
	}
	if end := len(p.values); list || end > start {
		p.params = append(p.params, Param{Name: name, Values: p.values[start:end:end], List: list})
	}
	return nil
}

// isNew notes name and tells whether it is new.
func (p *paramsParser) isNew(name string) bool {
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
	if len(few) < manyParams {
		p.few[p.names] = name
		p.names++
		return true
	}
	p.seen = make(map[string]struct{}, 4*manyParams)
	for _, other := range few {
		p.seen[other] = struct{}{}
	}
	p.seen[name] = struct{}{}
	return true
}

func (p *paramsParser) list() error {
	p.pos++
	if p.peek() == ']' {
		p.pos++
		return nil
	}
	for {
		if p.peek() == '[' {
			return errParamsListIn
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
func (p *paramsParser) scalar() error {
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
		return p.word("null")
	case c == '{':
		return errParamsObjectIn
	default:
		return p.unexpected("a value")
	}
	if err != nil {
		return fmt.Errorf("decode value: %w", err)
	}
	p.values = append(p.values, value)
	return nil
}
