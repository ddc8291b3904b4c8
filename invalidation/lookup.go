package invalidation

import (
	"encoding/binary"
	"slices"
	"strings"
)

// A Lookup finds, with a query, values of a parameter that the row does not give, or more values
// than it gives. It runs after the commit, so it sees the state after the change.
type Lookup struct {
	// Param is the parameter that it finds.
	Param string
	// With are the parameters whose values it finds too, each with one of Param.
	With []string
	// By names the values that the query gets: id, or parameters, given or looked up. Param itself
	// means the values that the row gives.
	By []string
	// SQL is one SELECT with exactly one ?, for the list of by-values (tuples if By has several
	// names). It selects the by-columns, in the order of By, then the value, and then the values of
	// With, in its order.
	SQL string
	// Always makes it run even if the row gives Param: its results are added.
	Always bool
	// Single reports that SQL is asked for one ID at a time, since it is wrong for several together
	// or not proven to be right. SingleReason is why, or "".
	Single       bool
	SingleReason string
	// Rank is how many lookups come before it: one is asked when those of lower ranks are answered,
	// and then all that a batch of rows asks it is known.
	Rank int
	// Line and Column are the place of the lookup's name in the map.
	Line, Column int
}

// Values returns the number of parameters that it finds values of.
func (l *Lookup) Values() int { return 1 + len(l.With) }

// asksItself reports whether it is asked by the values that it adds to.
func (l *Lookup) asksItself() bool { return slices.Contains(l.By, l.Param) }

// isAsked reports whether it is asked, where its values are given or not.
func (l *Lookup) isAsked(given bool) bool {
	if given {
		return l.Always
	}
	return !l.asksItself()
}

// A Need is one question to a Lookup. By has one value for each name of Lookup.By. Lookups belong
// to the Map that gave them: answers to one map's needs do not answer another's.
type Need struct {
	Lookup *Lookup
	By     []string
}

// Answers hold what lookups found. The zero value is ready. Not safe for concurrent use with Put.
type Answers struct {
	found map[*Lookup]map[string][]string
}

// Put records what answers n: of each row that was found the value of Lookup.Param, and behind it
// those of Lookup.With. None means: asked, and nothing found.
func (a *Answers) Put(n Need, values []string) {
	if a.found == nil {
		a.found = map[*Lookup]map[string][]string{}
	}
	byKey := a.found[n.Lookup]
	if byKey == nil {
		byKey = map[string][]string{}
		a.found[n.Lookup] = byKey
	}
	byKey[n.Key()] = values
}

// Get returns the values that were put for n, and whether there are any. A nil *Answers has none.
func (a *Answers) Get(n Need) ([]string, bool) {
	if a == nil {
		return nil, false
	}
	values, ok := a.found[n.Lookup][n.Key()]
	return values, ok
}

// Key returns a text that tells n from all other needs of its lookup: with their lengths, different
// lists never become the same text.
func (n Need) Key() string {
	if len(n.By) == 1 {
		return n.By[0]
	}
	size := 0
	for _, v := range n.By {
		size += binary.MaxVarintLen32 + len(v)
	}
	var b strings.Builder
	b.Grow(size)
	for _, v := range n.By {
		var length [binary.MaxVarintLen64]byte
		b.Write(binary.AppendUvarint(length[:0], uint64(len(v))))
		b.WriteString(v)
	}
	return b.String()
}
