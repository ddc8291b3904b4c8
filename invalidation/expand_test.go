package invalidation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// One file for each rule of the expansion: a map (the shipped one if the file has none), a row, the
// answers of lookups, and the expected needs, and plan or error.
func TestExpand(t *testing.T) {
	t.Parallel()
	for _, f := range textFiles(t, "testdata/expand/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(f.path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			m := shipped(t)
			if src, ok := f.section("map.yaml"); ok {
				m = mustParse(t, src)
			}
			var b strings.Builder
			if err := describe(&b, f, m); err != nil {
				var row *invalidation.RowError
				if !errors.As(err, &row) {
					t.Errorf("%v is not a RowError", err)
				}
				fmt.Fprintf(&b, "error %v\n", err)
			}
			f.compare(t, b.String())
		})
	}
}

func describe(b *strings.Builder, f textFile, m *invalidation.Map) error {
	row, err := fileRow(f)
	if err != nil {
		return err
	}
	if names := m.Undeclared(row); len(names) > 0 {
		fmt.Fprintf(b, "undeclared %q\n", names)
	}
	answers, err := ask(b, f, m, row)
	if err != nil {
		return err
	}
	plan, err := m.Expand(row, answers)
	if err != nil {
		return err
	}
	for _, list := range []struct {
		name  string
		texts []string
	}{{"key", plan.Keys}, {"pattern", plan.Patterns}, {"set", plan.Sets}} {
		for _, text := range list.texts {
			fmt.Fprintf(b, "%s %q\n", list.name, text)
		}
	}
	for _, d := range plan.Repeat {
		fmt.Fprintf(b, "repeat %v\n", d)
	}
	if plan.Hold > 0 {
		fmt.Fprintf(b, "hold %v\n", plan.Hold)
	}
	first, dropped := m.FirstDropped(row, answers)
	if dropped != (plan.Dropped > 0) {
		return fmt.Errorf("%d templates were dropped, the first is %v", plan.Dropped, first)
	}
	if dropped {
		fmt.Fprintf(b, "dropped %d %s %q %s\n", plan.Dropped, first.Entity, first.Text, first.Param)
	}
	return nil
}

func fileRow(f textFile) (invalidation.Row, error) {
	var row struct {
		Entity, ID string
		Params     json.RawMessage
	}
	text, _ := f.section("row")
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		return invalidation.Row{}, err
	}
	params, err := invalidation.ParseParams(row.Params)
	return invalidation.Row{Entity: row.Entity, ID: row.ID, Params: params}, err
}

// ask answers the needs of a row from the section answers: {"param": {"by,by": ["value"]}}. Other
// needs stay unanswered.
func ask(b *strings.Builder, f textFile, m *invalidation.Map, row invalidation.Row) (*invalidation.Answers, error) {
	var found map[string]map[string][]string
	text, given := f.section("answers")
	if given {
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			return nil, err
		}
	}
	answers := &invalidation.Answers{}
	for round := 1; ; round++ {
		needs, err := m.Needs(row, answers)
		if err != nil {
			return nil, err
		}
		if len(needs) > 0 && round > 1 {
			fmt.Fprintf(b, "round %d\n", round)
		}
		open := len(needs)
		for _, n := range needs {
			fmt.Fprintf(b, "need %s %q\n", n.Lookup.Param, n.By)
			if values, ok := found[n.Lookup.Param][strings.Join(n.By, ",")]; ok {
				answers.Put(n, values)
				open--
			}
		}
		if len(needs) == 0 || open > 0 {
			return answers, nil
		}
	}
}
