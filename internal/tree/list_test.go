package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/unstale/unstale"
)

// A listed is what go list says about a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string // of GoFiles, not of tests
	Deps       []string // likewise, with their own
	Export     string   // the file of its exported declarations, with -export
}

// name is the folder in the checkout, such as "internal/tree".
func (p listed) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// ours are the packages of the module among paths, by folder.
func ours(paths []string) []string {
	var names []string
	for _, p := range paths {
		if name, ok := strings.CutPrefix(p, module+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// list runs go list with arguments.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir = root
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
