package testenv

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
// of each node.
//
// A node that joins copies no data, which would need programs that Debian has elsewhere. All nodes
// begin with the same template, so it starts at the position of the cluster.
func OwnGalera(t testing.TB, nodes int, args ...string) []*servers.MySQL {
	t.Helper()
	library, err := servers.GaleraLibrary()
	if err != nil {
		t.Fatal(err)
	}
	s := settings{flavor: servers.KindMariaDB}
	var list []*servers.MySQL
	members, state := "", map[string]string(nil) // the first node founds the cluster
	for range nodes {
		bus, folder := BusPort(t), NodesFolder(t)
		if state != nil {
			text := fmt.Sprintf("version: 2.1\nuuid: %s\nseqno: %s\n", state["wsrep_cluster_state_uuid"], state["wsrep_last_committed"])
			if err := os.WriteFile(filepath.Join(folder, "grastate.dat"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		node, err := s.localMySQL(t.Context(), append([]string{
			"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-address=gcomm://" + members,
			"--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=skip", "--binlog-format=ROW",
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;base_dir=%s;gcache.size=16M", bus, BusPort(t), folder),
		}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if text, _ := os.ReadFile(node.Log()); t.Failed() {
				t.Logf("the end of the log of a node:\n%s", text[max(0, len(text)-6000):])
			}
			if err := node.Close(); err != nil {
				t.Error(err)
			}
		})
		run.use("MariaDB Galera", servers.ShortVersion(node.Version()), fromLocal)
		list = append(list, node)
		state = awaitGalera(t, node, len(list))
		if members == "" {
			members = fmt.Sprintf("127.0.0.1:%d", bus)
		}
	}
	awaitGalera(t, list[0], nodes)
	return list
}

// awaitGalera waits until a node accepts statements and sees all others, and returns its state.
func awaitGalera(t testing.TB, node *servers.MySQL, nodes int) (state map[string]string) {
	t.Helper()
	db, err := sql.Open("mysql", node.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	Eventually(t, "the node to be part of its cluster", func() bool {
		state = map[string]string{}
		rows, err := db.QueryContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'wsrep%'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name, value string
			if err := rows.Scan(&name, &value); err != nil {
				t.Fatal(err)
			}
			state[name] = value
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		committed, err := strconv.Atoi(state["wsrep_last_committed"]) // -1 until the node has a position
		return state["wsrep_ready"] == "ON" && state["wsrep_local_state_comment"] == "Synced" &&
			state["wsrep_cluster_size"] == strconv.Itoa(nodes) && err == nil && committed > 0
	})
	return state
}
