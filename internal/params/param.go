package params

// A Param is one parameter of a row.
type Param struct {
	Name string
	// Values are text, exactly as written: JSON numbers keep their source text. A scalar has one
	// value, a list any number, zero included.
	Values []string
	// List tells a list of one from a scalar.
	List bool

	nesting nesting
	gaps    bool
}

// Err returns why no template can use the value, or nil: it is an object, or a list with an object
// or another list in it. It has no Values then.
func (p Param) Err() error { return p.nesting.err() }

// Gaps reports whether the list that was written has a null, which is no value: those behind it
// have moved up.
func (p Param) Gaps() bool { return p.gaps }

// Params are the decoded parameters of a row, in the order written. Names are unique.
type Params []Param

// Get returns the parameter called name.
func (p Params) Get(name string) (Param, bool) {
	for i := range p {
		if p[i].Name == name {
			return p[i], true
		}
	}
	return Param{}, false
}
