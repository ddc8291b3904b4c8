package servers_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// The node that founded a cluster is killed, is a member again and has what it missed: of Galera if
// the tests use MariaDB, otherwise of Group Replication.
func TestKilledNodeIsAMemberAgain(t *testing.T) {
	t.Parallel()
	var nodes []*servers.MySQL
	var rejoin func(i int) error
	if testenv.OwnFlavor(t) == servers.KindMariaDB {
		g, err := servers.StartGalera(t.Context(), servers.GaleraOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		nodes, rejoin = g.Nodes, func(i int) error { return g.Rejoin(t.Context(), i) }
	} else {
		g, err := servers.StartGroup(t.Context(), servers.GroupOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		nodes, rejoin = g.Nodes, func(i int) error {
			if err := g.Nodes[i].Restart(t.Context()); err != nil {
				return err
			}
			return g.Join(t.Context(), i)
		}
	}
	const founder = 0
	var dbs []*sql.DB
	for _, node := range nodes {
		db, err := sql.Open("mysql", node.DSN(""))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		dbs = append(dbs, db)
	}
	for _, s := range []string{"CREATE DATABASE shop", "CREATE TABLE shop.rows (n INT PRIMARY KEY)"} {
		if _, err := dbs[founder].ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[founder].Kill(); err != nil {
		t.Fatal(err)
	}
	// when they know, after some seconds, that it is gone
	testenv.Eventually(t, "another node takes a write", func() bool {
		return slices.ContainsFunc(dbs[1:], func(db *sql.DB) bool {
			_, err := db.ExecContext(t.Context(), "INSERT INTO shop.rows VALUES (1)")
			return err == nil
		})
	})
	if err := rejoin(founder); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the node has the row", func() bool {
		n := 0
		err := dbs[founder].QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop.rows").Scan(&n)
		return err == nil && n == 1
	})
}
