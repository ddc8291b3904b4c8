package invalidation

import (
	"errors"

	"github.com/unstale/unstale/internal/params"
)

// A Row is the content of an outbox row: one change of one entity.
type Row struct {
	// Entity names an entity of the map.
	Entity string
	// ID is the id of the thing that changed, as written. It is never empty in a row that expands.
	ID string
	// Params are the row's parameters.
	Params Params
}

type (
	// A Param is one parameter of a row: its Name, its Values as text exactly as written (a scalar
	// has one, a list any number), and whether it is a List, even of one value. Err is the reason
	// why a nested value, which has no Values, cannot be used.
	Param = params.Param
	// Params are the decoded parameters of a row, in the order written, as [ParseParams] reads
	// them. Names are unique; Get finds one.
	Params = params.Params
)

// ParseParams decodes the params column of a row, as [params.ParseNested] does: a nested value
// refuses the row where the map declares its name, which Expand knows. The error is a *RowError
// with BadParameter.
func ParseParams(src []byte) (Params, error) {
	decoded, err := params.ParseNested(src)
	if err == nil {
		return decoded, nil
	}
	if fault := (*params.Error)(nil); errors.As(err, &fault) {
		return nil, badParam(fault.Name, fault.Err)
	}
	return nil, err
}
