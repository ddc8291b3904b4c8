package keyspace

import "testing"

// A key allocates the name of its lease, and one word for each of the two names, which the client
// library takes as values of any type. Not parallel, since allocations are counted for the whole
// process.
func TestAllocationsOfAKey(t *testing.T) {
	const perKey, perCommand, perCall = 3, 4, 10
	for _, size := range []int{10, 1000} {
		u, keys := &Unlinker{nodes: &Nodes{}}, couponKeys(size)
		commands := 0
		got := testing.AllocsPerRun(20, func() { commands = len(u.commandsOf(t, keys)) })
		if limit := perKey*size + perCommand*commands + perCall; got > float64(limit) {
			t.Errorf("%d keys in %d commands: %v allocations, want %d at most", size, commands, got, limit)
		}
	}
}
