package testenv

import (
	"os"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// OwnPrimaries starts a cluster of two nodes for one test, which both accept writes: Galera if the tests
// use MariaDB, otherwise Group Replication with several primaries.
func OwnPrimaries(t testing.TB) []*servers.MySQL {
	t.Helper()
	if OwnFlavor(t) == servers.KindMariaDB {
		return OwnGalera(t, 2)
	}
	return OwnGroup(t, servers.GroupOptions{Nodes: 2, SeveralPrimaries: true}).Nodes
}

// OwnGalera starts a Galera cluster for one test and returns when all its nodes accept statements.
// The nodes are local MariaDB servers, for each value of UNSTALE_TEST_DB. args are further options
// of each node. See [servers.StartGalera].
func OwnGalera(t testing.TB, nodes int, args ...string) []*servers.MySQL {
	t.Helper()
	g, err := servers.StartGalera(t.Context(), servers.GaleraOptions{Nodes: nodes, Args: append(slices.Clone(quickly), args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, node := range g.Nodes {
			if text, _ := os.ReadFile(node.Log()); t.Failed() {
				t.Logf("the end of the log of a node:\n%s", text[max(0, len(text)-6000):])
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	run.use("MariaDB Galera", servers.ShortVersion(g.Nodes[0].Version()), fromLocal)
	return g.Nodes
}
