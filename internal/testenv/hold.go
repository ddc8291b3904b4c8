package testenv

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// HoldCommits makes every COMMIT of a server hang until release is called or the test ends. No
// other test may use the server. Start it with [servers.BinaryLog].
func HoldCommits(t testing.TB, db *sql.DB) (release func()) {
	t.Helper()
	release = sync.OnceFunc(func() {
		if err := servers.ReleaseCommits(context.WithoutCancel(t.Context()), db); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	if err := servers.HoldCommits(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return release
}
