package invalidation

import "strconv"

// maxRank is how many lookups may follow each other: so many queries one after the other is what a row then waits for.
const maxRank = 8

// rankLookups finds how many lookups come before each one: those that it is asked by, and those that find the id of its entity.
func (c *compiler) rankLookups() {
	arrives := map[*entity]int{} // the lookups that come before the id of an entity is known
	for changed := true; changed; {
		changed = false
		for _, e := range c.order {
			known := func(slots []int, but int) (after int) {
				for _, n := range slots {
					switch l := e.entity.lookupOf(n); {
					case n == but:
					case n == idSlot:
						after = max(after, arrives[e.entity])
					case l != nil:
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
	for _, w := range c.lookups {
		if w.lookup == l {
			c.add(w.at, w.text, "more than "+strconv.Itoa(maxRank)+" lookups follow each other up to this one, or it leads to itself over ids that are looked up",
				"give an entity on the way a lookup of its own, or join the tables in one SELECT")
		}
	}
}
