package invalidation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/unstale/unstale/invalidation"
)

// textFile is one txtar file under testdata: the case, and the expected result.
type textFile struct {
	path    string
	archive *txtar.Archive
}

func textFiles(t *testing.T, pattern string) []textFile {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	var all []textFile
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, textFile{path, archive})
	}
	return all
}

// section returns the text of a file in the archive, and whether it exists.
func (f textFile) section(name string) (string, bool) {
	for _, file := range f.archive.Files {
		if file.Name == name {
			return string(file.Data), true
		}
	}
	return "", false
}

// compare compares got with the section want, or rewrites that with -update.
func (f textFile) compare(t *testing.T, got string) {
	t.Helper()
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n"
	}
	want, there := f.section("want")
	if got == want && there {
		return
	}
	if !*update {
		t.Errorf("%s: got\n%s\nwant\n%s", f.path, got, want)
		return
	}
	if !there {
		f.archive.Files = append(f.archive.Files, txtar.File{Name: "want"})
	}
	for i := range f.archive.Files {
		if f.archive.Files[i].Name == "want" {
			f.archive.Files[i].Data = []byte(got)
		}
	}
	if err := os.WriteFile(f.path, txtar.Format(f.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// One file for each rule of the grammar: a map that breaks it, and the whole message. This release
// loads some of these maps.
func TestBadMaps(t *testing.T) {
	t.Parallel()
	for _, f := range textFiles(t, "testdata/bad/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(f.path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			src, _ := f.section("map.yaml")
			m, err := invalidation.Parse("map.yaml", []byte(src), fileEnv(f))
			var faults invalidation.Faults
			if err == nil {
				faults = m.Deprecations()
			}
			if len(faults) == 0 && !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("%s: no faults, but %v", f.path, err)
			}
			f.compare(t, faults.Error())
		})
	}
}

// fileEnv looks up variables in the section env, a NAME=value a line.
func fileEnv(f textFile) func(string) (string, bool) {
	env, _ := f.section("env")
	return func(name string) (string, bool) {
		for line := range strings.Lines(env) {
			if key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "="); key == name {
				return value, true
			}
		}
		return "", false
	}
}

// Maps that no text file can contain.
func TestBadBytes(t *testing.T) {
	t.Parallel()
	good := "version: 1\nentities:\n  product:\n    keys: [\"p:{id}\"]\n"
	for name, c := range map[string]struct{ src, want string }{
		"invalid UTF-8": {good + "# \xff\n",
			`m.yaml:5:3: "\xff": not valid UTF-8; save the file as UTF-8`},
		"control character": {strings.Replace(good, "p:{id}", "p:\x01{id}", 1),
			"m.yaml:4:15: \"\\x01\": a control character, which YAML does not allow; remove it, or write it as an escape (such as \"\\n\") in double quotes"},
		"enumeration of 10,001 values": {strings.Replace(good, "keys: [\"p:", "each: {n: ["+numbers(10_001)+"]}\n    keys: [\"p{n}:", 1),
			`m.yaml:4:58906: "10000": more than 10000 values; use a pattern, or an index set`},
		"nothing": {"",
			`m.yaml:1:1: the map is empty; write version: 1, then entities:`},
		"only a byte order mark": {"\ufeff",
			`m.yaml:1:1: the map is empty; write version: 1, then entities:`},
		"Windows line ends": {strings.ReplaceAll(strings.Replace(good, "{id}", "{ix}", 1), "\n", "\r\n"),
			`m.yaml:4:12: "{ix}": unknown name; did you mean "id"?`},
	} {
		_, err := invalidation.Parse("m.yaml", []byte(c.src), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, c.want)
		}
	}
	for name, src := range map[string]string{
		"byte order mark":   "\ufeff" + good,
		"Windows line ends": strings.ReplaceAll(good, "\n", "\r\n"),
		"no line end":       strings.TrimSuffix(good, "\n"),
	} {
		m, err := invalidation.Parse("m.yaml", []byte(src), nil)
		if err != nil || m.Version() != mustParse(t, good).Version() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// numbers writes 0, 1, 2 and so on, n of them.
func numbers(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return strings.Join(texts, ", ")
}

func mustParse(t testing.TB, src string) *invalidation.Map {
	t.Helper()
	m, err := invalidation.Parse("map.yaml", []byte(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
