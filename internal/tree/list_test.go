package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/unstale/unstale"
)

// A listed is the output of go list for a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string // of GoFiles, not of tests
	Deps       []string // of GoFiles, including indirect ones
	Export     string   // the file of its exported declarations, with -export
}

// name returns the directory in the checkout, for example "internal/tree".
func (p listed) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// ours returns the packages of the module among paths, by directory.
func ours(paths []string) []string {
	var names []string
	for _, p := range paths {
		if name, ok := strings.CutPrefix(p, module+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// nested returns the directories of the modules below the root, except examples, whose packages
// have no rooms.
func nested(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "modules"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	folders := strings.Fields(string(out))
	if !slices.Contains(folders, ".") {
		t.Fatalf("%v does not list the root: %q", cmd.Args, folders)
	}
	return slices.DeleteFunc(folders, func(folder string) bool { return folder == "." || folder == "examples" })
}

// packages returns all packages of the modules that have rooms.
func packages(t *testing.T) []listed {
	t.Helper()
	all := list(t, "./...")
	for _, folder := range nested(t) {
		all = append(all, listIn(t, folder, "./...")...)
	}
	return all
}

// find returns the package in a directory.
func find(t *testing.T, name string) listed {
	t.Helper()
	folder, pattern := home(t, name)
	return listIn(t, folder, pattern)[0]
}

// home returns the directory of the module that a package is in, and the pattern of the package
// there.
func home(t *testing.T, name string) (folder, pattern string) {
	t.Helper()
	for _, folder := range nested(t) {
		if isWithin(name, folder) {
			return folder, "." + strings.TrimPrefix(name, folder)
		}
	}
	return ".", "./" + name
}

// list runs go list with arguments in the root's module.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	return listIn(t, ".", args...)
}

// listIn runs go list with arguments in the module of a directory.
func listIn(t *testing.T, folder string, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir = filepath.Join(root, folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		packages = append(packages, p)
	}
}
