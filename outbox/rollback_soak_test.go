//go:build soak

package outbox_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/testenv"
)

var (
	conflicts = flag.Int64("conflicts", 1000, "end the soak after so many transactions that a cluster has rolled back at COMMIT")
	kills     = flag.Int("kills", 20, "end the soak after so many kills of sessions")
)

const (
	// betweenKills is a time in which transactions commit on all nodes.
	betweenKills = 500 * time.Millisecond
	// nodeKills is how many kills of sessions come before a node is killed.
	nodeKills = 20
)

// InTx repeats no transaction that has committed, whether another node changed a row first, or its
// session or its node was killed while it committed.
func TestNoRepeatedTransactionHasCommitted(t *testing.T) {
	var nodes []*servers.MySQL
	var killNode func() // nil for Galera, whose killed nodes need a copy of all data
	if testenv.OwnFlavor(t) == servers.KindMariaDB {
		nodes = testenv.OwnGalera(t, 3)
	} else {
		g := testenv.OwnGroup(t, servers.GroupOptions{SeveralPrimaries: true, Args: []string{"--super-read-only=ON"}})
		nodes = g.Nodes
		killNode = func() {
			i := rand.IntN(len(nodes))
			for _, step := range []func() error{nodes[i].Kill, func() error { return nodes[i].Restart(t.Context()) }, func() error { return g.Join(t.Context(), i) }} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p := newProof(t, nodes)
	stop := p.writers(4)
	defer stop()
	killed, killedNodes := 0, 0
	for killed < *kills || p.conflicts.Load() < *conflicts {
		if err := sleep.For(t.Context(), betweenKills); err != nil {
			t.Fatal(err)
		}
		if killed == *kills {
			continue
		}
		killed += p.killSession(t, rand.IntN(len(nodes)))
		if killNode != nil && killed/nodeKills > killedNodes {
			killedNodes++
			killNode()
		}
	}
	stop()
	p.check(t)
	t.Logf("%d kills of sessions and %d of nodes, %d conflicts at COMMIT, %d calls, %d of which may have committed",
		killed, killedNodes, p.conflicts.Load(), len(p.calls), p.unknown.Load())
}

// killSession kills a session of a node that commits, and returns how many it has killed.
func (p *proof) killSession(t *testing.T, node int) (n int) {
	t.Helper()
	for n == 0 {
		for _, id := range testenv.Sessions(t, p.dbs[node], "info LIKE 'COMMIT%'") {
			if _, err := p.dbs[node].ExecContext(t.Context(), fmt.Sprint("KILL CONNECTION ", id)); err == nil { // otherwise it has ended
				n++
			}
		}
	}
	return n
}
