package params

import "strconv"

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
