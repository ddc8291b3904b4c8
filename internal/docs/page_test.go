package docs

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/invalidation"
)

var (
	linkText    = regexp.MustCompile(`\]\(([^)]+)\)`)
	headingText = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fencedText  = regexp.MustCompile("(?ms)^```.*?^```$")
	punctuation = regexp.MustCompile(`[^\pL\pN _-]`)
)

// Links within the checkout have a target, and are relative.
func TestLinks(t *testing.T) {
	t.Parallel()
	others := []string{
		"CONTRIBUTING.md", "clients/php/README.md", "clients/php/frameworks/README.md",
		"clients/typescript/README.md", "clients/typescript/recipes/README.md", "lab/conform/README.md",
		"protocol/conformance/README.md", "protocol/models/README.md",
	}
	for _, page := range append(pages(t), others...) {
		for _, match := range linkText.FindAllStringSubmatch(fencedText.ReplaceAllString(read(t, page), ""), -1) {
			link := match[1]
			if strings.HasPrefix(link, "https://") {
				if strings.HasPrefix(link+"/", repository) {
					t.Errorf("%s: %s: not published yet, link to the checkout", page, link)
				}
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

var citedHeading = regexp.MustCompile(`(docs/[\w-]+\.md)#([\w-]+)`)

// Headings that the programs' source cites exist.
func TestCitedHeadings(t *testing.T) {
	t.Parallel()
	cited := 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		name, err = filepath.Rel(root, name)
		for _, match := range citedHeading.FindAllStringSubmatch(read(t, name), -1) {
			cited++
			if !slices.Contains(anchors(t, match[1]), match[2]) {
				t.Errorf("%s cites %s, which has no heading #%s", name, match[1], match[2])
			}
		}
		return err
	})
	if err != nil || cited == 0 {
		t.Errorf("%d citations, %v", cited, err)
	}
}

// knownAnchors caches the anchors of pages.
var knownAnchors sync.Map

// anchors returns the headings of a page as anchors: GitHub drops punctuation.
func anchors(t testing.TB, page string) (list []string) {
	t.Helper()
	if known, ok := knownAnchors.Load(page); ok {
		return known.([]string)
	}
	defer func() { knownAnchors.Store(page, list) }()
	text := fencedText.ReplaceAllString(read(t, page), "") // # begins a comment there
	for _, match := range headingText.FindAllStringSubmatch(text, -1) {
		list = append(list, strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return list
}

// The index of the pages links to each page.
func TestIndex(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		if name, ok := strings.CutPrefix(page, "docs/"); ok && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
}

// Maps on pages are valid, and other YAML can be parsed.
func TestYAML(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		if name == "APP_ENV" {
			return "prod", true
		}
		return "", false
	}
	maps := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page, "yaml") {
			if strings.HasPrefix(b.text, "version: 1") {
				maps++
				if _, err := invalidation.Parse(b.page, []byte(b.text), env); err != nil {
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
	for _, row := range table(t, "docs/map.md", "field of a read") {
		for _, name := range strings.Split(row[0], ", ") {
			if _, known := schema.Defs["read"].Properties[name]; !known {
				t.Errorf("docs/map.md explains %s, which no read has", name)
			}
			seen["reads."+name] = true
		}
	}
	for name := range schema.Defs["read"].Properties {
		defaults["reads."+name] = nil
	}
	for name := range defaults {
		if !seen[name] {
			t.Errorf("docs/map.md does not explain %s", name)
		}
	}
}

// docs/operations.md has a fix for every reason of a dead letter.
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

// docs/operations.md describes every state of an outage of Redis.
func TestOutages(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, row := range table(t, "docs/operations.md", "redis") {
		for _, word := range strings.Split(row[0], ", ") {
			known[word] = true
		}
	}
	states := regexp.MustCompile(`(?m)^\tState\w+ += "(\w+)"`).FindAllStringSubmatch(read(t, "internal/keyspace/faults.go"), -1)
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

var layoutLine = regexp.MustCompile("(?m)^- `([^`]+)`: \\S")

// docs/how-it-works.md has one line for every directory with files, and no other, except testdata
// and what git ignores.
func TestRepositoryLayout(t *testing.T) {
	t.Parallel()
	const page = "docs/how-it-works.md"
	_, layout, found := strings.Cut(read(t, page), "\n## Repository layout\n")
	if !found {
		t.Fatalf("%s has no layout", page)
	}
	listed := map[string]int{}
	for _, match := range layoutLine.FindAllStringSubmatch(layout, -1) {
		listed[match[1]]++
	}
	files, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{".": true}
	for file := range strings.Lines(string(files)) {
		dir := path.Dir(file)
		if known[dir] || strings.Contains("/"+dir+"/", "/testdata/") {
			continue
		}
		known[dir] = true
		if listed[dir] != 1 {
			t.Errorf("%s has %d lines for %s, wanted one", page, listed[dir], dir)
		}
		delete(listed, dir)
	}
	for dir := range listed {
		t.Errorf("%s lists %s, which has no files", page, dir)
	}
}

var (
	transition = regexp.MustCompile(`(?m)^    (\S+) --> (\S+): \S`)
	bareState  = regexp.MustCompile(`[a-z]+`)
)

// The state table and its picture use the words of the picture in worker/doc.go.
func TestStates(t *testing.T) {
	t.Parallel()
	const page = "docs/how-it-works.md"
	drawn := map[string]bool{}
	for _, match := range transition.FindAllStringSubmatch(onlyBlock(t, page, "mermaid", "stateDiagram-v2").text, -1) {
		for _, state := range match[1:] {
			drawn[state] = state != "[*]"
		}
	}
	delete(drawn, "[*]")
	_, source, _ := strings.Cut(read(t, "worker/doc.go"), "//\t")
	source, _, _ = strings.Cut(source, "\n//\n")
	words := bareState.FindAllString(source, -1)
	for _, row := range table(t, page, "state") {
		if !drawn[row[0]] {
			t.Errorf("%s: the picture does not have the state %s", page, row[0])
		}
		if !slices.Contains(words, row[0]) {
			t.Errorf("%s has a state %s, the picture in worker/doc.go does not", page, row[0])
		}
		delete(drawn, row[0])
	}
	for state := range drawn {
		t.Errorf("%s draws a state %s that its table does not explain", page, state)
	}
}
