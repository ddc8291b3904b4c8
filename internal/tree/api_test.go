package tree

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests would compare with")

// Every change of the public API shows in a diff of testdata/api. `go test ./internal/tree -update`
// accepts it.
func TestPublicAPI(t *testing.T) {
	t.Parallel()
	public := map[string]bool{}
	for _, p := range packages(t) {
		if isWithin(p.name(), "internal") || isWithin(p.name(), "lock/internal") || isWithin(p.name(), "cmd") || isWithin(p.name(), "lab") || isWithin(p.name(), "deploy") || isWithin(p.name(), "scripts") {
			continue
		}
		file := filepath.Join("testdata", "api", strings.ReplaceAll(p.name(), "/", "_")+".txt")
		public[filepath.Base(file)] = true
		got := api(t, p)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v; see the test's comment", err)
			continue
		}
		if gone, added := diff(string(want), got), diff(got, string(want)); got != string(want) {
			t.Errorf("what %s exports has changed; see the test's comment\ngone:\n%s\nnew:\n%s", p.name(), gone, added)
		}
	}
	kept, err := os.ReadDir(filepath.Join("testdata", "api"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range kept {
		if !public[file.Name()] {
			t.Errorf("testdata/api/%s is of no public package", file.Name())
		}
	}
}

// api prints the exported declarations of a package, sorted, without comments and bodies.
func api(t *testing.T, p listed) string {
	t.Helper()
	files := token.NewFileSet()
	var decls []string
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			if text := declaration(t, files, decl); text != "" {
				decls = append(decls, text)
			}
		}
	}
	slices.Sort(decls)
	return "package " + p.name() + "\n\n" + strings.Join(decls, "\n")
}

func declaration(t *testing.T, files *token.FileSet, decl ast.Decl) string {
	t.Helper()
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !isExported(d.Recv.List[0].Type) {
			return ""
		}
		d.Body = nil
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return ""
		}
	}
	var text bytes.Buffer
	if err := printer.Fprint(&text, files, decl); err != nil {
		t.Fatal(err)
	}
	tidy, err := format.Source(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(tidy), "\n\n", "\n") + "\n"
}

// isExported reports whether the receiver's type name is exported.
func isExported(receiver ast.Expr) bool {
	switch r := receiver.(type) {
	case *ast.StarExpr:
		return isExported(r.X)
	case *ast.IndexExpr:
		return isExported(r.X)
	case *ast.IndexListExpr:
		return isExported(r.X)
	case *ast.Ident:
		return r.IsExported()
	}
	return false
}

// diff lists the lines of a that b does not have.
func diff(a, b string) string {
	var lines strings.Builder
	have := map[string]int{}
	for line := range strings.Lines(b) {
		have[line]++
	}
	for line := range strings.Lines(a) {
		if have[line]--; have[line] < 0 {
			lines.WriteString("  " + line)
		}
	}
	return lines.String()
}
