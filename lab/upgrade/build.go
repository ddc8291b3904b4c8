package upgrade

import (
	"context"
	_ "embed" // of the files below
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

var (
	//go:embed reader/main.go
	reader []byte
	//go:embed step.sql
	step []byte
)

var versionLine = regexp.MustCompile(`(?m)^const Version = (\d+)$`)

// SchemaOf returns the version of the schema of the code in a tree.
func SchemaOf(tree string) (int, error) {
	text, err := os.ReadFile(schemaFile(tree))
	if err != nil {
		return 0, err
	}
	m := versionLine.FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%s has no line such as \"const Version = 23\"", schemaFile(tree))
	}
	return strconv.Atoi(string(m[1]))
}

func schemaFile(tree string) string { return filepath.Join(tree, "internal/schema/schema.go") }

// Build compiles a tree of the repository into the directory out. With more, the schema of the
// program has one step more than the tree. The reader is always the present one, compiled
// with the library of the tree.
func Build(ctx context.Context, tree, out string, more bool) (r Release, err error) {
	if tree, err = filepath.Abs(tree); err != nil {
		return r, err
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return r, err
	}
	o := overlay{dir: out, Replace: map[string]string{}}
	if err := o.put(filepath.Join(tree, "lab/upgrade/reader/main.go"), reader); err != nil {
		return r, err
	}
	if more {
		version, err := SchemaOf(tree)
		if err != nil {
			return r, err
		}
		source, err := os.ReadFile(schemaFile(tree))
		if err != nil {
			return r, err
		}
		source = versionLine.ReplaceAll(source, fmt.Appendf(nil, "const Version = %d", version+1))
		if err := o.put(schemaFile(tree), source); err != nil {
			return r, err
		}
		if err := o.put(filepath.Join(tree, fmt.Sprintf("migrations/%05d_upgrade.sql", version+1)), step); err != nil {
			return r, err
		}
	}
	if r.Program, err = o.build(ctx, tree, "./cmd/unstale", "unstale"); err != nil {
		return r, err
	}
	r.Reader, err = o.build(ctx, filepath.Join(tree, "lab"), "./upgrade/reader", "reader")
	return r, err
}

// An overlay replaces files in a build.
type overlay struct {
	dir     string // of the replacements
	Replace map[string]string
}

func (o *overlay) put(path string, text []byte) error {
	by := filepath.Join(o.dir, fmt.Sprint("file", len(o.Replace)))
	o.Replace[path] = by
	return os.WriteFile(by, text, 0o600)
}

// build compiles a package of a module and returns the path of the program.
func (o *overlay) build(ctx context.Context, module, pkg, name string) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	file, program := filepath.Join(o.dir, "overlay.json"), filepath.Join(o.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-C", module, "-trimpath", "-race=false", "-overlay", file, "-o", program, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s of %s: %w: %s", pkg, module, err, out)
	}
	return program, nil
}
