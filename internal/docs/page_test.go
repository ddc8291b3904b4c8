package docs

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/invalidation"
)

var (
	linkText    = regexp.MustCompile(`\]\(([^)]+)\)`)
	headingText = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Links within the checkout lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, match := range linkText.FindAllStringSubmatch(read(t, page), -1) {
			link := match[1]
			if strings.HasPrefix(link, "https://") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(link, "#")
			target := path.Join(path.Dir(page), file)
			if file == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s: %v", page, link, err)
				continue
			}
			if hasAnchor && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

// anchors are the headings of a page as links write them.
func anchors(t testing.TB, page string) (list []string) {
	t.Helper()
	for _, match := range headingText.FindAllStringSubmatch(read(t, page), -1) {
		list = append(list, strings.ReplaceAll(strings.ToLower(match[1]), " ", "-"))
	}
	return list
}

// Maps that pages show are good ones, other YAML can be read at least.
func TestYAML(t *testing.T) {
	t.Parallel()
	unset := func(string) (string, bool) { return "", false }
	maps := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page, "yaml") {
			if strings.HasPrefix(b.text, "version: 1") {
				maps++
				if _, err := invalidation.Parse(b.page, []byte(b.text), unset); err != nil {
					t.Errorf("%s:%d: %v", b.page, b.line, err)
				}
				continue
			}
			if err := yaml.Unmarshal([]byte(b.text), new(any)); err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
			}
		}
	}
	if maps == 0 {
		t.Error("no page shows a map")
	}
}

// docs/map.md has every field of the grammar, with its default, and no other.
func TestFields(t *testing.T) {
	t.Parallel()
	type property struct {
		Properties map[string]property
		Default    any
	}
	var schema struct {
		Properties map[string]property
		Defs       map[string]property `json:"$defs"`
	}
	if err := json.Unmarshal(invalidation.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]any{}
	for name, p := range schema.Properties {
		for inner, q := range p.Properties {
			defaults[name+"."+inner] = q.Default
		}
		if p.Properties == nil {
			defaults[name] = p.Default
		}
	}
	for name := range schema.Defs["entity"].Properties {
		if _, both := defaults[name]; !both { // params is a field of the map as well
			defaults[name] = nil
		}
	}
	seen := map[string]bool{}
	for _, row := range table(t, "docs/map.md", "field") {
		name := row[0]
		value, known := defaults[name]
		if !known {
			t.Errorf("docs/map.md explains %s, which the grammar does not know", name)
		}
		seen[name] = true
		if text, _ := json.Marshal(value); value != nil && strings.Trim(string(text), `"`) != row[len(row)-1] {
			t.Errorf("docs/map.md: the default of %s is %s, not %s", name, text, row[len(row)-1])
		}
	}
	for name := range defaults {
		if !seen[name] {
			t.Errorf("docs/map.md does not explain %s", name)
		}
	}
}

// docs/operations.md has a cure for every reason of a dead letter.
func TestReasons(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, reason := range invalidation.Reasons() {
		want = append(want, string(reason))
	}
	for _, row := range table(t, "docs/operations.md", "reason") {
		got = append(got, row[0])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operations.md has the reasons %q, wanted %q", got, want)
	}
}

// docs/operations.md knows every state of an outage of Redis.
func TestOutages(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, row := range table(t, "docs/operations.md", "redis") {
		for _, word := range strings.Split(row[0], ", ") {
			known[word] = true
		}
	}
	states := regexp.MustCompile(`(?m)^\tState\w+ += "(\w+)"`).FindAllStringSubmatch(read(t, "internal/keyspace/fault.go"), -1)
	for _, match := range states {
		if !known[match[1]] {
			t.Errorf("docs/operations.md does not know the state %s", match[1])
		}
		delete(known, match[1])
	}
	for word := range known {
		t.Errorf("docs/operations.md knows a state %s, package keyspace does not", word)
	}
}

// The states have the words of worker/doc.go, and the same picture.
func TestStates(t *testing.T) {
	t.Parallel()
	picture := onlyBlock(t, "docs/operations.md", "", "waiting ──").text
	source := strings.ReplaceAll(read(t, "worker/doc.go"), "//\t", "")
	if !strings.Contains(source, picture) {
		t.Errorf("worker/doc.go draws the states in another way than docs/operations.md:\n%s", picture)
	}
	for _, row := range table(t, "docs/operations.md", "state") {
		if !strings.Contains(picture, row[0]) {
			t.Errorf("the picture does not know the state %s", row[0])
		}
	}
}
