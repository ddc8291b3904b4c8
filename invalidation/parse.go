package invalidation

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Parse reads, checks and compiles a map. File names it in faults; nothing is read from there. LookupEnv gives the
// values of ${NAME} under vars, as os.LookupEnv does; nil knows none. The error is of type Faults and has every fault
// of the map, in file order.
func Parse(file string, src []byte, lookupEnv func(string) (string, bool)) (*Map, error) {
	if lookupEnv == nil {
		lookupEnv = func(string) (string, bool) { return "", false }
	}
	r := &report{file: file}
	source := readSource(src, r)
	root := source.parse(r)
	if root == nil || root.Kind == yaml.ScalarNode && root.Value == "" {
		if len(r.faults) == 0 {
			r.add(place{1, 1}, "", "the map is empty", "write "+exampleRoot)
		}
		return nil, Faults(r.sorted())
	}
	doc := decodeDocument(&decoder{r, source}, root)
	c := &compiler{report: r, doc: doc, env: lookupEnv, partial: source.partial, unread: source.unread.String()}
	m := c.compile()
	if len(r.faults) > 0 {
		return nil, Faults(r.sorted())
	}
	advice := &report{file: file}
	c.warn(m, advice)
	m.warnings = slices.Clip(advice.sorted())
	m.version = m.fingerprint()
	return m, nil
}
