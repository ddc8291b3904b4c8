package invalidation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Worker and readers tell maps apart by their fingerprints: that of a map stays what it was in all
// versions to come. A line of the file is only ever added.
func TestFingerprintsStay(t *testing.T) {
	t.Parallel()
	const file = "testdata/fingerprints.txt"
	var b strings.Builder
	for _, pattern := range []string{"testdata/expand/*.txtar", "testdata/warn/*.txtar"} {
		for _, f := range textFiles(t, pattern) {
			if src, ok := f.section("map.yaml"); ok {
				fmt.Fprintf(&b, "%s %s\n", mustParse(t, src).Version(), filepath.ToSlash(f.path))
			}
		}
	}
	want, err := os.ReadFile(file)
	if *update {
		err = os.WriteFile(file, []byte(b.String()), 0o644)
		want = []byte(b.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(want)) {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no longer: %s", line)
		}
	}
	if got := strings.Count(b.String(), "\n"); got != strings.Count(string(want), "\n") {
		t.Errorf("%d maps, and the file has %d: -update writes the new ones", got, strings.Count(string(want), "\n"))
	}
}
