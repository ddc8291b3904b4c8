package invalidation

import "github.com/unstale/unstale/internal/sqltext"

// What no exported function tells, for the tests of the rules of SQL, of templates and of origins.
var (
	ErrNotRun     = errNotRun
	NamesInSQL    = namesInSQL
	TogetherFault = togetherFault
	IsName        = isName
)

// SQLFaults returns the parts of a query that are at fault, and those that are for many rows.
func SQLFaults(sql string, by, values int) (all, batch []string) {
	a, b := sqlFaults(sql, by, values)
	return textsOfFaults(a), textsOfFaults(b)
}

// BatchFaults returns the second of them, for any text.
func BatchFaults(sql string) []string { return textsOfFaults(batchFaults(sqltext.Tokens(sql))) }

func textsOfFaults(list []templateError) (texts []string) {
	for _, f := range list {
		texts = append(texts, f.text)
	}
	return texts
}

// IsTemplate reports whether a template has no fault.
func IsTemplate(source string) bool {
	_, errs := parseTemplate(source)
	return len(errs) == 0
}

// AnyName returns a name that a pattern reaches, with wildcards as text.
func AnyName(pattern string) (name string) {
	for _, p := range globPieces(pattern) {
		name += p.text + map[byte]string{'*': "any*", '?': "?"}[p.wild]
	}
	return name
}

// Declared lists the parameters that an entity declares.
func (m *Map) Declared(entity string) []string { return m.entities[entity].declared }

// SetKeysPerRow sets a limit that a map of its own would repeat for each case.
func (m *Map) SetKeysPerRow(n int) { m.limits.KeysPerRow = n }
