package invalidation

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Parse reads, checks and compiles a map. The argument file names it in faults; nothing is read
// from there. lookupEnv gives the values of ${NAME} under vars, as os.LookupEnv does; nil knows
// none. The error is of type Faults: the first place that is not YAML, or else every fault of the
// map, in file order.
func Parse(file string, src []byte, lookupEnv func(string) (string, bool)) (*Map, error) {
	if lookupEnv == nil {
		lookupEnv = func(string) (string, bool) { return "", false }
	}
	return parse(file, src, lookupEnv, false)
}

// ParseNames is like Parse, for callers that use the names of the map and not its keys: every
// environment variable has some valid value.
func ParseNames(file string, src []byte) (*Map, error) {
	return parse(file, src, func(string) (string, bool) { return "", false }, true)
}

func parse(file string, src []byte, env func(string) (string, bool), anyEnv bool) (*Map, error) {
	r := &report{file: file}
	root, ok := parseYAML(string(src), r)
	if ok && (root == nil || root.Kind == yaml.ScalarNode && root.Value == "") {
		r.add(place{1, 1}, "", "the map is empty", "write "+exampleRoot)
		ok = false
	}
	if !ok {
		return nil, Faults(inFileOrder(r.faults))
	}
	later := &report{file: file}
	c := newCompiler(decodeDocument(&decoder{r}, root), &scalars{report: r, env: env, anyEnv: anyEnv}, later)
	m := c.compile()
	if len(r.faults) > 0 {
		r.faults = append(r.faults, later.faults...)
		return nil, Faults(inFileOrder(r.faults))
	}
	m.deprecations = slices.Clip(inFileOrder(later.faults))
	advice := &report{file: file}
	(&adviser{report: advice, all: c, captures: m.captures}).warn()
	open := &report{file: file}
	(&coverage{report: open, advice: advice, m: m, steps: maxCoverSteps}).check(c.reads)
	m.uncovered = slices.Clip(inFileOrder(open.faults))
	m.warnings = slices.Clip(inFileOrder(advice.faults))
	m.version, m.reads.version = m.fingerprint(), m.reads.fingerprint()
	return m, nil
}
