package invalidation_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// One file for each kind of advice.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, f := range textFiles(t, "testdata/warn/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(f.path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			src, _ := f.section("map.yaml")
			f.compare(t, invalidation.Faults(mustParse(t, src).Warnings()).Error())
		})
	}
}
