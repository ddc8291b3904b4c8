package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	sentence = regexp.MustCompile(`(?m)^//  (\d+)\. `)
	promised = regexp.MustCompile(`(?m)^\*\*(\d+)\. `)
	testName = regexp.MustCompile("`(Test\\w+)`")
	citation = regexp.MustCompile(`(?m)^// Sentences? (\d+)(?: and (\d+))?[ :,].*(?:\n//.*)*\nfunc (Test\w+)`)
)

// docs/promises.md explains every sentence of worker/doc.go, and names tests that cite it.
func TestPromises(t *testing.T) {
	t.Parallel()
	const page = "docs/promises.md"
	cites := citations(t)
	text, _, _ := strings.Cut(read(t, page), "\n## Limits")
	starts := promised.FindAllStringSubmatchIndex(text, -1)
	var explained []string
	for i, at := range starts {
		number, end := text[at[2]:at[3]], len(text)
		if number != strconv.Itoa(i+1) {
			t.Errorf("%s: promise %d has the number %s", page, i+1, number)
		}
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		explained = append(explained, number)
		named := testName.FindAllStringSubmatch(text[at[0]:end], -1)
		if len(named) == 0 {
			t.Errorf("%s: promise %s names no test", page, number)
		}
		for _, match := range named {
			if !slices.Contains(cites[match[1]], number) {
				t.Errorf("%s: promise %s names %s, which cites %q", page, number, match[1], cites[match[1]])
			}
		}
	}
	for _, match := range sentence.FindAllStringSubmatch(read(t, "worker/doc.go"), -1) {
		if i := slices.Index(explained, match[1]); i >= 0 {
			explained = slices.Delete(explained, i, i+1)
		} else {
			t.Errorf("%s does not have sentence %s of worker/doc.go", page, match[1])
		}
	}
	if len(explained) > 0 {
		t.Errorf("%s has %q, which worker/doc.go does not, or twice", page, explained)
	}
}

// citations returns the sentences that tests cite, by the test's name.
func citations(t testing.TB) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, dir := range []string{"worker", "outbox", "internal/store", "internal/session", "cmd/unstale"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, match := range citation.FindAllStringSubmatch(read(t, dir+"/"+filepath.Base(file)), -1) {
				found[match[3]] = append(found[match[3]], match[1], match[2])
			}
		}
	}
	return found
}
