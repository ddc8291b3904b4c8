package lock_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// A server is refused if other servers accept writes too: a node of Galera, and one of group
// replication with several primaries. Only the setting decides.
func TestSeveralWriters(t *testing.T) {
	t.Parallel()
	args, refusal, cure := galera, "wsrep_on is ON: ", "SET GLOBAL wsrep_on = OFF"
	if testenv.OwnFlavor(t) == servers.KindMySQL {
		args = func(testing.TB) []string {
			return []string{"--plugin-load-add=group_replication.so", "--loose-group-replication-single-primary-mode=OFF"}
		}
		refusal, cure = "group_replication_single_primary_mode is OFF: ", "SET GLOBAL group_replication_single_primary_mode = ON"
	}
	server := testenv.OwnMySQL(t, args(t)...)
	db, err := sql.Open("mysql", server.DSN("mysql"))
	must(t, err)
	defer db.Close()
	w := newWorld(t)
	config, err := mysql.ParseDSN(server.DSN("mysql"))
	must(t, err)
	attempt := func(wanted string) {
		t.Helper()
		_, err := w.Locker(lock.Config{MySQL: config}).TryAcquire(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%v, wanted %q", err, wanted)
		}
		if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
			t.Error("the lock was kept")
		}
	}
	if server.Flavor() == servers.KindMariaDB {
		testenv.Eventually(t, "the node to be part of its cluster", func() bool {
			var name, ready string
			must(t, db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_ready'").Scan(&name, &ready))
			return ready == "ON"
		})
	}
	attempt(refusal)
	_, err = db.ExecContext(t.Context(), cure)
	must(t, err)
	attempt("unstale migrate up") // this database has no table
}

// galera returns the options of the first node of a cluster.
func galera(t testing.TB) []string {
	library, err := servers.GaleraLibrary()
	must(t, err)
	return []string{
		"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1", "--binlog-format=ROW",
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;gcache.size=1M", testenv.BusPort(t)),
	}
}
