package invalidation_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// One file for each rule of coverage: a map with reads, and what is uncovered, or advised.
func TestReads(t *testing.T) {
	t.Parallel()
	for _, f := range textFiles(t, "testdata/reads/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(f.path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			src, _ := f.section("map.yaml")
			m, err := invalidation.Parse("map.yaml", []byte(src), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := invalidation.Faults(m.Uncovered()).Error()
			for _, advice := range m.Warnings() {
				if strings.Contains(advice.Cure, "from: [") {
					got += "\nadvice: " + advice.String()
				}
			}
			f.compare(t, strings.TrimPrefix(got, "\n"))
		})
	}
}
