package tree

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

var (
	promise  = regexp.MustCompile(`(?m)^//  (\d+)\. `)
	citation = regexp.MustCompile(`(?m)^// Sentences? (\d+)(?: and (\d+))?[ :,].*(?:\n//.*)*\nfunc Test`)
)

// A test cites every sentence that worker/doc.go promises.
func TestPromisesAreCited(t *testing.T) {
	t.Parallel()
	top := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(top, "worker", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	cited := map[string]bool{}
	for _, dir := range []string{"worker", "outbox", filepath.Join("internal", "store"), filepath.Join("cmd", "unstale")} {
		files, err := filepath.Glob(filepath.Join(top, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range citation.FindAllStringSubmatch(string(text), -1) {
				cited[m[1]], cited[m[2]] = true, true
			}
		}
	}
	promises := promise.FindAllStringSubmatch(string(doc), -1)
	for i, m := range promises {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("sentence %d has the number %s", i+1, m[1])
		}
		if !cited[m[1]] {
			t.Errorf("no test cites sentence %s of worker/doc.go", m[1])
		}
	}
	if len(promises) < 15 {
		t.Errorf("worker/doc.go has %d numbered sentences", len(promises))
	}
}
