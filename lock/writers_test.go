package lock_test

import (
	"database/sql"
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
	refusal, cure := "wsrep_on is ON: ", "SET GLOBAL wsrep_on = OFF"
	var server *servers.MySQL
	if testenv.OwnFlavor(t) == servers.KindMySQL {
		server = testenv.OwnMySQL(t, "--plugin-load-add=group_replication.so", "--loose-group-replication-single-primary-mode=OFF")
		refusal, cure = "group_replication_single_primary_mode is OFF: ", "SET GLOBAL group_replication_single_primary_mode = ON"
	} else {
		server = testenv.OwnGalera(t, 1)[0]
	}
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
	attempt(refusal)
	_, err = db.ExecContext(t.Context(), cure)
	must(t, err)
	attempt("unstale migrate up") // this database has no table
}
