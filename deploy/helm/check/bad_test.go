package check

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Bad values are refused with a message that names the value and the rule: the first line of each
// file.
func TestBadValues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(path.Base(file), func(t *testing.T) {
			t.Parallel()
			first, _, _ := strings.Cut(read(t, file), "\n")
			want := strings.TrimPrefix(first, "# ")
			_, err := helm(t, "template", "unstale", chart, "--values", chart+"/ci/plain-values.yaml", "--values", file)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("wanted %q in: %v", want, err)
			}
		})
	}
}
