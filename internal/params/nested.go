package params

import "errors"

// A nesting says what makes a value more than a list of scalars.
type nesting uint8

const (
	flat nesting = iota
	objectIn
	listIn
)

var (
	errObjectIn      = errors.New("an object is neither a scalar nor a list of scalars")
	errListIn        = errors.New("a list within a list is not a scalar")
	errDuplicateName = errors.New("an object in it has a name twice")
)

func (n nesting) err() error {
	switch n {
	case objectIn:
		return errObjectIn
	case listIn:
		return errListIn
	}
	return nil
}

func nestingOf(err error) nesting {
	switch err {
	case errObjectIn:
		return objectIn
	case errListIn:
		return listIn
	}
	return flat
}

// skipNested returns where the value ends that begins at pos in src, however deep it nests.
func skipNested(src string, pos int) (int, error) {
	n := nest{parser: parser{scanner: scanner{src: src, pos: pos}}, names: map[memberName]struct{}{}}
	for {
		inside, err := n.begin()
		if err != nil {
			return 0, err
		}
		if !inside {
			if n.end(); len(n.open) == 0 {
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

// begin consumes a scalar, or the beginning of a list or an object, and reports whether that has
// anything in it.
func (n *nest) begin() (bool, error) {
	if c := n.peek(); c != '[' && c != '{' {
		err := n.scalar()
		n.values = n.values[:0]
		return false, err
	}
	n.open = append(n.open, n.pos)
	n.pos++
	return n.peek() != n.closing(), nil
}

// end consumes the ends of the lists and objects that are over.
func (n *nest) end() {
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
	text, err := n.text()
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
