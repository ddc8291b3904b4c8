package invalidation

// A Row is what an application wrote: one change of one thing.
type Row struct {
	// Entity names an entity of the map.
	Entity string
	// ID is the id of the thing that changed, as written. It is never empty in a row that expands.
	ID string
	// Params are the row's parameters.
	Params Params
}

// A Param is one parameter of a row.
type Param struct {
	Name string
	// Values are text, exactly as written: JSON numbers keep their source text. A scalar has one value, a list any
	// number, zero included.
	Values []string
	// List tells a list of one from a scalar.
	List bool
}

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
