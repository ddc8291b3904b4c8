package invalidation

import (
	"slices"
	"strconv"
)

// maxRank is how many lookups can depend on each other in a chain: a row waits for as many
// sequential queries.
const maxRank = 8

// rankLookups finds how many lookups come before each one: those that it is asked by, and, where
// that is the id of an entity, those that find it.
func (c *compiler) rankLookups() {
	arrives := map[*entity]int{} // how many lookups come before the id of an entity is known
	for changed := true; changed; {
		changed = false                                // each time at least one rank is final
		for _, e := range slices.Backward(c.visited) { // none before what expands as it
			known := func(slots []int, but int) int {
				after := 0
				for _, n := range slots {
					if n == idSlot {
						after = max(after, arrives[e.entity])
					} else if l := e.entity.lookupOf(n); l != nil && n != but {
						after = max(after, l.Rank+1)
					}
				}
				return after
			}
			for n, s := range e.entity.slots {
				if s.lookup == nil {
					continue
				}
				if after := known(s.by.slots, n); after > s.lookup.Rank {
					s.lookup.Rank, changed = after, true
				}
				if s.lookup.Rank > maxRank {
					c.addEndless(s.lookup)
					return
				}
			}
			for _, a := range e.entity.as {
				if after := known(a.id.slots, noSlot); after > arrives[a.target] {
					arrives[a.target], changed = after, true
				}
			}
		}
	}
}

func (c *compiler) addEndless(l *Lookup) {
	for _, w := range c.lookups.all {
		if w.lookup == l {
			c.add(w.at, w.text, "more than "+strconv.Itoa(maxRank)+" lookups follow each other up to this one, or it leads to itself over ids that are looked up",
				"give an entity on the way a lookup of its own, or join the tables in one SELECT")
		}
	}
}
