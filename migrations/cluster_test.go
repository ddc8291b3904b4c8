package migrations_test

import (
	"database/sql"
	"strconv"
	"sync"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// Migrators that start together on two nodes of a cluster run one at a time, although a user lock
// is local to a node.
func TestPairsOnTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := testenv.OwnPrimaries(t)
	for i := range 3 {
		t.Run(strconv.Itoa(i), func(t *testing.T) { upOnBoth(t, nodes) })
	}
}

// upOnBoth migrates a new database through all nodes together. Each step must be applied once.
func upOnBoth(t *testing.T, nodes []*servers.MySQL) {
	t.Helper()
	const name = "shop"
	admin := testenv.OpenDB(t, nodes[0].DSN(""))
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var dbs []*sql.DB
	for _, node := range nodes {
		db := testenv.OpenDB(t, node.DSN(name))
		testenv.Eventually(t, "the database to exist on each node", func() bool { return db.PingContext(t.Context()) == nil })
		dbs = append(dbs, db)
	}
	start, applied := make(chan struct{}), make([]int, len(dbs))
	var group sync.WaitGroup
	for i, db := range dbs {
		group.Go(func() {
			<-start
			done, err := migrations.Up(t.Context(), db)
			if err != nil {
				t.Errorf("up on node %d: %v", i, err)
			}
			applied[i] = len(done)
		})
	}
	close(start)
	group.Wait()
	if t.Failed() {
		return
	}
	for i, db := range dbs {
		var rows, versions int
		testenv.Eventually(t, "the node to catch up", func() bool {
			err := db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT version_id) FROM "+migrations.VersionTable).Scan(&rows, &versions)
			return err == nil && versions == files+1
		})
		if rows != versions {
			t.Errorf("node %d: %d rows for %d versions", i, rows, versions)
		}
	}
	if applied[0]+applied[1] != files {
		t.Errorf("applied %v, wanted %d in all", applied, files)
	}
}
