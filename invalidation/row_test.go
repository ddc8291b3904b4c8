package invalidation_test

import (
	"errors"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

func listParam(name string, values ...string) invalidation.Param {
	return invalidation.Param{Name: name, Values: append([]string{}, values...), List: true}
}

// A parameter that package params refuses makes the row invalid, with its reason and its name.
func TestParseParams(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`[]`:                    `bad_parameter: the parameters must be a JSON object of scalars and lists of scalars`,
		`{"category_id":[1,2`:   `bad_parameter "category_id": the JSON ends too early`,
		"{\"a\":1,\"a\":\"x\"}": `bad_parameter "a": the name is given twice`,
	} {
		got, err := invalidation.ParseParams([]byte(src))
		var row *invalidation.RowError
		if !errors.As(err, &row) || row.Reason != invalidation.BadParameter || err.Error() != want || got != nil {
			t.Errorf("%s: got %v, %v\nwant %s", src, got, err, want)
		}
	}
	got, err := invalidation.ParseParams([]byte(`{"a":1.10,"b":[]}`))
	if a, _ := got.Get("a"); err != nil || len(got) != 2 || a.Values[0] != "1.10" {
		t.Errorf("got %v, %v", got, err)
	}
}
