package tree

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
	"testing"
)

// public are the packages that others import.
var public = []string{"cache", "cache/cacheprom", "cache/cachetest", "cache/msgpack", "invalidation", "limit", "limit/limitprom", "lock", "lock/lockprom", "migrations", "outbox", "protocol", "worker"}

// Nothing that others may import shows a type that they may not: neither a field, a parameter or a result, nor a
// method. An internal type to which the package gives a name of its own, as invalidation.Params, is as good as its own.
func TestNoInternalTypeShows(t *testing.T) {
	t.Parallel()
	args := []string{"-export", "-deps"}
	for _, name := range public {
		args = append(args, "./"+name)
	}
	exports := map[string]string{}
	for _, p := range list(t, args...) {
		exports[p.ImportPath] = p.Export
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, name := range public {
		pkg, err := compiled.Import(module + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		v := &visitor{t: t, pkg: pkg, seen: map[types.Type]bool{}, own: map[types.Type]bool{}}
		for _, symbol := range pkg.Scope().Names() {
			if o, ok := pkg.Scope().Lookup(symbol).(*types.TypeName); ok && o.Exported() {
				v.own[types.Unalias(o.Type())] = true
			}
		}
		for _, symbol := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(symbol); o.Exported() {
				v.visit(o.Type(), symbol)
			}
		}
		if len(v.seen) == 0 {
			t.Errorf("%s exports nothing: the test has lost its point", name)
		}
	}
}

// A visitor follows whatever a user of a package can reach by exported names.
type visitor struct {
	t    *testing.T
	pkg  *types.Package
	seen map[types.Type]bool
	own  map[types.Type]bool // that have an exported name in the package
}

// visit looks at a type that shows at a place.
func (v *visitor) visit(shown types.Type, place string) {
	if v.seen[shown] {
		return
	}
	v.seen[shown] = true
	switch shown := shown.(type) {
	case *types.Alias:
		v.visit(types.Unalias(shown), place)
	case *types.Named:
		v.named(shown, place)
	case *types.Struct:
		for field := range shown.Fields() {
			if field.Exported() || field.Embedded() {
				v.visit(field.Type(), place+"."+field.Name())
			}
		}
	case *types.Interface:
		for method := range shown.Methods() {
			v.visit(method.Type(), place+"."+method.Name())
		}
		for embedded := range shown.EmbeddedTypes() {
			v.visit(embedded, place)
		}
	case *types.Signature:
		for _, list := range []*types.Tuple{shown.Params(), shown.Results()} {
			for variable := range list.Variables() {
				v.visit(variable.Type(), place)
			}
		}
	case *types.Map:
		v.visit(shown.Key(), place)
		v.visit(shown.Elem(), place)
	case interface{ Elem() types.Type }: // a pointer, a slice, an array, a channel
		v.visit(shown.Elem(), place)
	}
}

// named goes into the types of the package itself; those of others are theirs to answer for.
func (v *visitor) named(shown *types.Named, place string) {
	if p := shown.Obj().Pkg(); p != nil && !v.own[shown] && strings.HasPrefix(p.Path(), module+"/internal/") {
		v.t.Errorf("%s.%s shows %s.%s, which nobody outside of the module can name", v.pkg.Path(), place, p.Path(), shown.Obj().Name())
	}
	for argument := range shown.TypeArgs().Types() {
		v.visit(argument, place)
	}
	if shown.Obj().Pkg() != v.pkg && !v.own[shown] {
		return
	}
	v.visit(shown.Underlying(), place)
	methods := types.NewMethodSet(types.NewPointer(shown))
	for method := range methods.Methods() {
		if method.Obj().Exported() {
			v.visit(method.Type(), place+"."+method.Obj().Name())
		}
	}
}
