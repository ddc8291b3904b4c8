//go:build soak

package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// A planted is a fault that the first sentence of the console has to name.
type planted struct {
	name        string
	plant, heal func()
	says        []string // texts of the sentence: the cause, and what to do
}

// Each fault is planted in running servers. The first line of `unstale status` names it within 15
// seconds, the first sentence of the console as well, and no longer once it is healed.
func TestConsoleNamesFaults(t *testing.T) {
	t.Parallel()
	d := newStopDrill(t, servers.BinaryLog...)
	page := d.page()
	d.worker.until("the page is well", func() bool { return strings.HasPrefix(page.sentence(), "nothing is stale") })
	var named []string
	cli := d.drill()
	check := func(p planted, line []string) {
		t.Helper()
		p.plant()
		cli.wants(p.name, time.Now(), line...)
		said := page.wantSentence(p)
		named = append(named, fmt.Sprintf("%-34s %s", p.name, said))
		p.heal()
		page.wantSentence(planted{name: p.name + " is healed", says: []string{"nothing is stale"}})
	}
	for _, s := range d.stops() {
		if s.status == nil {
			continue
		}
		plant := s.plant
		if s.enqueue {
			plant = func() { s.plant(); d.enqueue(1) }
		}
		// the page says "unknown: "
		says := slices.DeleteFunc(slices.Clone(s.status), func(text string) bool { return strings.HasPrefix(text, "whether anything is stale") })
		check(planted{s.name, plant, s.heal, says}, s.status)
	}
	d.worker.signal(syscall.SIGTERM)
	d.worker.wantExit(exitDone)
	d.writeMap(strings.Replace(stopMap, "}}\n", "}, list: {patterns: [\"shop:list:{id}:*\"]}, tag: {sets: [\"tag:{id}\"]}}\n", 1))
	d.startWorker()
	for _, p := range d.others() {
		check(p, p.says)
	}
	t.Logf("%d faults, and the first sentence of the console:\n%s", len(named), strings.Join(named, "\n"))
	if len(named) < 12 {
		t.Errorf("only %d faults were planted", len(named))
	}
	d.worker.signal(syscall.SIGTERM)
	d.worker.wantExit(exitDone)
}

// A faultPage is a console without a worker in its process.
type faultPage struct {
	*browser
	drill *stopDrill
}

func (d *stopDrill) page() faultPage {
	d.t.Helper()
	account, err := mysql.ParseDSN(d.mysql.DSN("shop"))
	d.must(err)
	return faultPage{bareConsole(d.t, account, d.server.URL()), d}
}

// wantSentence waits until the first sentence has all texts, and returns it.
func (p faultPage) wantSentence(f planted) (said string) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * patience); ; {
		said = p.sentence()
		missing := ""
		for _, text := range f.says {
			if !strings.Contains(said, text) {
				missing = text
			}
		}
		if missing == "" {
			return said
		}
		if strings.Contains(said, "invalid connection") {
			p.t.Fatalf("%s: %s", f.name, said)
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: the sentence lacks %q: %s", f.name, missing, said)
		}
		p.drill.must(sleep.For(p.t.Context(), 100*time.Millisecond)) // a status is read every 7 s
	}
}

// others are faults that docs/doctor.md does not list.
func (d *stopDrill) others() []planted {
	other := filepath.Join(d.t.TempDir(), "other.yaml")
	var second *running
	var holder *sql.Tx
	stop := func() {}
	return []planted{
		{
			"a pause", func() { d.unstale(d.operator, "pause", "--for", "1h", "--reason", "moving redis") }, func() { d.unstale(d.operator, "resume") },
			[]string{"all workers are paused by ", " (moving redis)", "unstale resume"},
		}, {
			"a MySQL that does not answer", func() { d.must(d.mysql.Pause()) }, func() { d.must(d.mysql.Resume()) },
			[]string{"unknown: MySQL does not answer in time", "check that it runs"},
		}, {
			"a Redis that is full", func() { d.redisDo("CONFIG", "SET", "maxmemory", "1"); d.enqueue(1) }, func() { d.redisDo("CONFIG", "SET", "maxmemory", "0") },
			[]string{"STALE since ", "worker web-1 is kept from working (redis oom)", "raise maxmemory", "1 row waits", "docs/operations.md#outages"},
		}, {
			"keys that Redis refuses", func() {
				d.redisDo("ACL", "SETUSER", "carrier", "resetkeys", "~unstale:*", "~lock:*")
				d.enqueue(1)
			}, func() { d.redisDo("ACL", "SETUSER", "carrier", "allkeys") },
			[]string{"STALE since ", "tried again after a failure (redis_refused): 1 row, ", "see: unstale delayed list --reason redis_refused"},
		}, {
			"sweeps that fail", func() {
				d.redisDo("ACL", "SETUSER", "carrier", "-scan")
				d.do("INSERT INTO shop.cache_outbox (entity, entity_id) VALUES ('list', '7')")
			}, func() {
				d.redisDo("ACL", "SETUSER", "carrier", "+scan")
				// it would be tried again within a minute
				d.do("DELETE FROM shop.cache_outbox_sweeps", "DELETE FROM shop.cache_outbox_sweeper WHERE name = 'failed'")
			}, []string{"STALE since ", "sweeps wait, and all fail in worker web-1", "+scan", "docs/operations.md#sweeps"},
		}, {
			"a sweep that Redis refuses", func() {
				d.redisDo("SET", "tag:7", "not a set")
				d.do("INSERT INTO shop.cache_outbox (entity, entity_id) VALUES ('tag', '7')")
			}, func() {
				d.redisDo("DEL", "tag:7")
				d.do("UPDATE shop.cache_outbox_sweeps SET not_before = UTC_TIMESTAMP(6)")
			}, []string{"STALE since ", "Redis refuses 1 sweep, the last: ", "WRONGTYPE", "docs/operations.md#sweeps"},
		}, {
			"a Redis from an old snapshot", func() { holder = d.goBack() }, func() { d.must(holder.Rollback()) },
			[]string{"STALE since ", "Redis went back to older data, so removed keys are there again, and worker web-1 unlinks them", "wait; its log shows the progress"},
		}, {
			"an old entry that cannot be removed", func() {
				d.redisDo("ACL", "SETUSER", "carrier", "-eval", "-evalsha")
				stop = d.storeOldEntries()
			}, func() {
				stop()
				d.redisDo("DEL", "shop:thing:old")
				d.redisDo("ACL", "SETUSER", "carrier", "+eval", "+evalsha")
				before := d.absent()
				d.enqueue(1)
				d.worker.until("no earlier check is under way", func() bool { return d.absent() > before })
				d.do("DELETE FROM shop.cache_outbox_stale")
			}, []string{"STALE since ", "the entry of shop:thing:old survived an UNLINK and is still in Redis", "docs/operations.md#a-stale-entry"},
		}, {
			"IDs that have run out", func() {
				conn, err := d.db.Conn(d.t.Context())
				d.must(err)
				for _, statement := range []string{"SET insert_id = 18446744073709551614", "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '1', UTC_TIMESTAMP(6))"} {
					_, err = conn.ExecContext(d.t.Context(), statement)
					d.must(err)
				}
				d.must(conn.Close())
			}, func() {
				d.do("DELETE FROM shop.cache_outbox_delayed", "ALTER TABLE shop.cache_outbox_delayed AUTO_INCREMENT = 1000")
			}, []string{"unknown: table cache_outbox_delayed has no ID left, so every insert into it fails", "docs/operations.md#ids-that-run-out"},
		}, {
			"workers with different maps", func() {
				writeSecret(d.t, other, thingMap)
				second = d.start("--worker", "web-2", "--map", other)
			}, func() { second.signal(syscall.SIGTERM); second.wantExit(exitDone) },
			[]string{"unknown: workers work with 2 versions of the map", "give all workers one file: unstale doctor --check running-map"},
		},
	}
}

// goBack restarts Redis with a snapshot that is older than the last batches. The transaction that
// it returns has them locked, so a worker cannot unlink them again.
func (d *stopDrill) goBack() *sql.Tx {
	d.t.Helper()
	d.redisDo("SAVE")
	d.enqueue(3)
	d.worker.until("the rows are settled", func() bool { return d.count("cache_outbox") == 0 })
	// new batches have their place
	holder, err := d.db.BeginTx(d.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	d.must(err)
	_, err = holder.Exec("SELECT id FROM cache_outbox_journal FORCE INDEX (PRIMARY) FOR UPDATE")
	d.must(err)
	d.must(d.server.Kill())
	d.must(d.server.Restart(d.t.Context()))
	d.redisDo("ACL", "SETUSER", "carrier", "on", ">pw", "~*", "&*", "+@all") // no snapshot has it
	return holder
}

// absent returns how many spot checks found no entry.
func (d *stopDrill) absent() (n int) {
	d.t.Helper()
	d.must(d.db.QueryRow("SELECT COALESCE(SUM(absent), 0) FROM cache_outbox_minutes").Scan(&n))
	return n
}

// storeOldEntries acts as a reader that ignores leases, until stop is called: after each UNLINK it
// stores an entry that was loaded before.
func (d *stopDrill) storeOldEntries() (stop func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	var storing sync.WaitGroup
	storing.Go(func() {
		for n := 0; sleep.For(ctx, 10*time.Millisecond) == nil; n++ {
			if n%50 == 0 {
				_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', 'old')")
			}
			text := fmt.Sprintf(`{"e":%d,"b":%d,"v":1}`, time.Now().Add(time.Hour).UnixMilli(), time.Now().Add(-time.Minute).UnixMicro())
			_ = d.redis.Set(ctx, "shop:thing:old", text, time.Minute).Err()
		}
	})
	stop = func() { cancel(); storing.Wait() }
	d.t.Cleanup(stop)
	return stop
}
