//go:build soak

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// restorable returns a world on a new MySQL, and the directory of its data.
func restorable(t *testing.T) (j *judged, own *servers.MySQL, data string) {
	t.Helper()
	own = testenv.OwnMySQL(t)
	j = &judged{world: newWorld(t)}
	j.use(own)
	return j, own, filepath.Join(filepath.Dir(own.Log()), "data")
}

// works lets a worker settle a batch for each of n rows, and ends it when it has published the last
// one in Redis.
func (j *judged) works(name string, n int) {
	j.t.Helper()
	r := j.start("--worker", name)
	for range n {
		j.enqueue(1)
		testenv.Eventually(j.t, "the row goes", func() bool { return j.count("cache_outbox") == 0 })
	}
	var last int
	if err := j.db.QueryRow("SELECT MAX(id) FROM cache_outbox_journal").Scan(&last); err != nil {
		j.t.Fatal(err)
	}
	testenv.Eventually(j.t, "the last batch is published", func() bool {
		return strings.Contains(fmt.Sprint(j.redis.HGetAll(j.t.Context(), "unstale:sources").Val()), fmt.Sprintf(`"last_id":%d}`, last))
	})
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
}

// A database that was restored from a cold copy is reported as such, and not as a Redis that has
// lost writes. The command of the first line removes what readers stored from the lost data.
func TestADatabaseIsRestored(t *testing.T) {
	t.Parallel()
	r := restore(t, false)
	for _, part := range []string{"redis went back in time", "healing", "redis lost unlinks"} {
		if strings.Contains(r.log.String(), part) {
			t.Errorf("the worker blames Redis: %s", r.log.String())
		}
	}
}

// If the backup is older than the beacons' lifetime, its journal names epochs without a beacon. The
// worker heals them as well.
func TestADatabaseIsRestoredWithoutBeacons(t *testing.T) {
	t.Parallel()
	r := restore(t, true)
	if !r.log.has("redis has everything again") || !r.log.has(`"batches":2`) {
		t.Errorf("the worker has not healed the two batches of the backup: %s", r.log.String())
	}
}

// restore puts a database back from a cold copy, and returns the worker that served it then. old
// expires the beacons of the worker before the copy.
func restore(t *testing.T, old bool) *running {
	t.Helper()
	j, own, data := restorable(t)
	offline := func(do func() error) {
		t.Helper()
		if err := own.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := own.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	backup := filepath.Join(t.TempDir(), "data")
	j.works("before", 2)
	offline(func() error { return os.CopyFS(backup, os.DirFS(data)) })
	beacons := j.redis.Keys(t.Context(), protocol.BeaconPrefix+"*").Val()
	j.works("after", 3)
	j.setKeys(3) // of the data that is gone
	offline(func() error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(backup))
	})
	if old {
		for _, name := range beacons {
			j.redis.PExpire(t.Context(), name, time.Millisecond)
		}
		testenv.Eventually(t, "the beacons expire", func() bool { return j.redis.Exists(t.Context(), beacons...).Val() == 0 })
	}
	r := j.start("--worker", "restored")
	(&drill{*j}).wants("a restored database", time.Now(), "STALE", "the database is older than Redis", "unstale source restored")
	testenv.Eventually(t, "nothing else is wrong", func() bool { j.look(); return len(j.last.Causes) == 1 && j.has("restored") })
	want := 3
	if old {
		want = 2 // healing has unlinked the key in the restored journal
	}
	if n := j.keys(); n != want {
		t.Errorf("%d keys are there, wanted %d", n, want)
	}
	j.must(call(t, j.env, "source", "restored", "--map", j.env["UNSTALE_MAP"]))
	j.says("fresh", fresh)
	testenv.Eventually(t, "the names of the map are swept", func() bool { return j.keys() == 0 })
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	return r
}
