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

// public are the packages that other modules import.
var public = []string{"cache", "cache/cacheotel", "cache/cacheprom", "cache/cachetest", "cache/msgpack", "console", "invalidation", "limit", "limit/limitprom", "lock", "lock/lockprom", "lock/zk", "migrations", "outbox", "protocol", "redisurl", "worker"}

// No public package exposes a type that other modules may not import: in a field, a parameter, a
// result or a method. An internal type with an exported name in one of these packages, for example
// invalidation.Params, counts as the package's own.
func TestNoInternalTypeShows(t *testing.T) {
	t.Parallel()
	patterns := map[string][]string{}
	for _, name := range public {
		folder, pattern := home(t, name)
		patterns[folder] = append(patterns[folder], pattern)
	}
	exports := map[string]string{}
	for folder, names := range patterns {
		for _, p := range listIn(t, folder, append([]string{"-export", "-deps"}, names...)...) {
			exports[p.ImportPath] = p.Export
		}
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	own := map[types.Type]bool{}
	var all []*types.Package
	for _, name := range public {
		pkg, err := compiled.Import(module + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
		for _, symbol := range pkg.Scope().Names() {
			if o, ok := pkg.Scope().Lookup(symbol).(*types.TypeName); ok && o.Exported() {
				own[types.Unalias(o.Type())] = true
			}
		}
	}
	for _, pkg := range all {
		v := &visitor{t: t, pkg: pkg, seen: map[types.Type]bool{}, own: own}
		for _, symbol := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(symbol); o.Exported() {
				v.visit(o.Type(), symbol)
			}
		}
		if len(v.seen) == 0 {
			t.Errorf("%s exports nothing: the test has lost its point", pkg.Path())
		}
	}
}

// A visitor follows all types that a user of a package can reach by exported names.
type visitor struct {
	t    *testing.T
	pkg  *types.Package
	seen map[types.Type]bool
	own  map[types.Type]bool // types with an exported name in a public package
}

// visit checks a type that is exposed at a place.
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

// named descends into the package's own types; types of other packages are checked there.
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
