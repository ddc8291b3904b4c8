package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mostMethods limits the methods of a type in this repository, including those of embedded types. A
// type with more has several jobs, and its users depend on all of them.
const mostMethods = 25

// A declaredType is a type declared in the source of this repository.
type declaredType struct {
	methods map[string]bool // its own
	embeds  []string        // keys of types
}

// TestNoTypeIsAHub counts methods by syntax: it needs no types and reads all modules.
func TestNoTypeIsAHub(t *testing.T) {
	t.Parallel()
	types := declaredTypes(t)
	if len(types) < 500 {
		t.Fatalf("found %d types", len(types))
	}
	for name := range types {
		if n := len(methodsOf(types, name, map[string]bool{})); n > mostMethods {
			t.Errorf("%s has %d methods, at most %d are allowed: split it by its jobs, and embed less", name, n, mostMethods)
		}
	}
}

// methodsOf returns the names of the methods of a type, including those of embedded types.
func methodsOf(types map[string]*declaredType, name string, seen map[string]bool) map[string]bool {
	all := map[string]bool{}
	one := types[name]
	if one == nil || seen[name] {
		return all
	}
	seen[name] = true
	for m := range one.methods {
		all[m] = true
	}
	for _, e := range one.embeds {
		for m := range methodsOf(types, e, seen) {
			all[m] = true
		}
	}
	return all
}

// declaredTypes reads all packages of all modules, without tests. A key is the directory, a dot,
// and the name.
func declaredTypes(t *testing.T) map[string]*declaredType {
	t.Helper()
	types := map[string]*declaredType{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err == nil {
			readTypes(types, filepath.ToSlash(folder), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func readTypes(types map[string]*declaredType, folder string, file *ast.File) {
	get := func(name string) *declaredType {
		if types[folder+"."+name] == nil {
			types[folder+"."+name] = &declaredType{methods: map[string]bool{}}
		}
		return types[folder+"."+name]
	}
	imports := map[string]string{}
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value) // the parser has read it
		in, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		name := in[strings.LastIndex(in, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = in
	}
	key := func(e ast.Expr) string { return embeddedKey(e, folder, imports) }
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				if name, ok := strings.CutPrefix(key(d.Recv.List[0].Type), folder+"."); ok {
					get(name).methods[d.Name.Name] = true
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					readType(get(spec.Name.Name), spec.Type, key)
				}
			}
		}
	}
}

func readType(into *declaredType, of ast.Expr, key func(ast.Expr) string) {
	var fields *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			into.embeds = append(into.embeds, key(f.Type))
		} else if _, isMethod := f.Type.(*ast.FuncType); isMethod {
			if _, isInterface := of.(*ast.InterfaceType); isInterface {
				into.methods[f.Names[0].Name] = true
			}
		}
	}
}

// embeddedKey returns the key of a type's name, or "" for a type of another module.
func embeddedKey(e ast.Expr, folder string, imports map[string]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return embeddedKey(e.X, folder, imports)
	case *ast.IndexExpr:
		return embeddedKey(e.X, folder, imports)
	case *ast.IndexListExpr:
		return embeddedKey(e.X, folder, imports)
	case *ast.Ident:
		return folder + "." + e.Name
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok && imports[pkg.Name] != "" {
			return imports[pkg.Name] + "." + e.Sel.Name
		}
	}
	return ""
}
