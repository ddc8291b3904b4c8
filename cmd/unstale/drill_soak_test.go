//go:build soak

package main

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// namedWithin is how long after a fault `unstale status` names it at the latest.
const namedWithin = 15 * time.Second

// A drill is a judged world whose faults have to be named in time.
type drill struct{ judged }

// drill returns the world as the operator has it.
func (d *stopDrill) drill() *drill {
	return &drill{judged{world: &world{t: d.t, db: d.db, server: d.server, redis: d.redis, env: d.operator}}}
}

// wants waits until the first line has all parts, and checks how long that took since began. It
// returns the whole output.
func (d *drill) wants(name string, began time.Time, parts ...string) (said string) {
	d.t.Helper()
	first := ""
	defer func() { d.t.Logf("%-32s %4.1f s  %s", name, time.Since(began).Seconds(), first) }()
	testenv.Eventually(d.t, name, func() bool {
		r := call(d.t, d.env, "status")
		said = r.out + r.err
		first, _, _ = strings.Cut(said, "\n")
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(first, part) })
	})
	if took := time.Since(began); took > namedWithin {
		d.t.Errorf("%s: named after %s", name, took)
	}
	return said
}

// Each fault is planted in running servers, one after another. Within 15 seconds the first line of
// status names the cause and what to do, and after the repair it is well again.
func TestFaultsAreNamedInTime(t *testing.T) {
	t.Parallel()
	disk, err := servers.NewDisk(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	d := newStopDrill(t, append(servers.BinaryLog, "--log-bin="+filepath.Join(disk.Dir, "log"))...)
	w := d.drill()
	w.says("fresh", fresh)
	for _, f := range d.faults(disk) {
		testenv.Eventually(t, "no row of the fault before waits", func() bool { return d.count("cache_outbox") == 0 })
		f.plant()
		w.wants(f.name, time.Now(), f.says...)
		f.heal()
		w.says("fresh", fresh)
	}
	d.worker.signal(syscall.SIGTERM)
	d.worker.wantExit(exitDone)
}

// held runs plant while the worker is frozen with a row that it has not claimed.
func (d *stopDrill) held(plant func()) {
	d.t.Helper()
	d.must(servers.Freeze(d.worker.cmd.Process))
	d.enqueue(1)
	plant()
	d.worker.signal(syscall.SIGCONT)
}

// faults lists what the drill plants in one MySQL and one Redis.
func (d *stopDrill) faults(disk *servers.Disk) (list []planted) {
	d.t.Helper()
	session, err := d.admin.Conn(d.t.Context())
	d.must(err)
	d.t.Cleanup(func() { _ = session.Close() })
	do := func(statements ...string) func() {
		return func() {
			for _, s := range statements {
				_, err := session.ExecContext(d.t.Context(), s)
				d.must(err)
			}
		}
	}
	large := func() { // a row whose DELETE does not fit into what is left of the log's last page
		_, err := d.db.ExecContext(d.t.Context(), "INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('thing', '1', ?)", `{"text": "`+strings.Repeat("x", 8<<10)+`"}`)
		d.must(err)
	}
	carrier := func(rules ...any) func() {
		return func() { d.redisDo(append([]any{"ACL", "SETUSER", "carrier"}, rules...)...) }
	}
	connections := outages["mysql has too many connections"]
	list = []planted{
		{"FLUSH TABLES WITH READ LOCK", func() { d.held(do("FLUSH TABLES WITH READ LOCK")) }, do("UNLOCK TABLES"),
			[]string{"STALE since ", "worker web-1 ", "FLUSH TABLES WITH READ LOCK"}},
		{"LOCK TABLES on the outbox", func() { d.held(do("LOCK TABLES shop.cache_outbox WRITE")) }, do("UNLOCK TABLES"),
			[]string{"unknown: ", "LOCK TABLES", "docs/settings.md#sessions-that-wait"}},
		{"no connections left", func() { d.held(func() { connections.breakIt(d.frail) }) }, func() { connections.fix(d.frail) },
			[]string{"unknown: ", "Too many connections", "raise max_connections"}},
		{"a killed worker", func() { d.worker.signal(syscall.SIGKILL); <-d.worker.over; d.enqueue(1) }, d.startWorker,
			[]string{"STALE since ", "no worker has been heard for ", "the last was web-1", "1 row waits", "start one: unstale run"}},
		{"a Redis that pauses clients", func() { d.redisDo("CLIENT", "PAUSE", "600000", "WRITE"); d.enqueue(1) }, func() { d.redisDo("CLIENT", "UNPAUSE") },
			[]string{"STALE since ", "worker web-1 is kept from working (redis timeout)", "1 row waits", "docs/operations.md#outages"}},
		{"a changed password of Redis", func() { carrier("resetpass", ">other")(); d.redisDo("CLIENT", "KILL", "USER", "carrier"); d.enqueue(1) }, carrier(">pw"),
			[]string{"STALE since ", "worker web-1 is kept from working (redis auth)", "check the user and", "1 row waits"}},
		{"an ACL without UNLINK", func() { carrier("-unlink")(); d.enqueue(1) }, carrier("+unlink"),
			[]string{"STALE since ", "worker web-1 is kept from working (redis noperm)", "+unlink", "1 row waits"}},
		{"a full disk of the binary log", func() { d.held(func() { large(); d.must(disk.Fill()) }) }, func() { d.must(disk.Free()) },
			[]string{"STALE since ", "worker web-1 ", "a COMMIT", "free space on the disk of MySQL's binary log"}},
	}
	if d.mysql.Flavor() == servers.KindMariaDB {
		list = append(list, planted{"BACKUP STAGE BLOCK_COMMIT", func() { d.held(do("BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT")) }, do("BACKUP STAGE END"),
			[]string{"STALE since ", "worker web-1 ", "a COMMIT", "end the backup"}})
	}
	var holder *sql.Tx
	return append(list, planted{"a restart while Redis is healed", func() {
		holder = d.goBack()
		d.worker.until("it heals", func() bool { return d.worker.log.has("redis went back in time") })
		d.worker.signal(syscall.SIGKILL)
		<-d.worker.over
		d.worker = d.start("--worker", "web-1", "--claim-timeout", "3s")
		d.worker.until("it heals again", func() bool { return d.worker.log.has("redis went back in time") })
	}, func() { d.must(holder.Rollback()) },
		[]string{"STALE since ", "Redis went back to older data, so removed keys are there again, and worker web-1 unlinks them", "wait; its log shows the progress"}})
}

// A Cluster's master does not answer.
func TestMasterAwayIsNamedInTime(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")
	d := &drill{judged{world: newWorld(t)}}
	d.env["REDIS_URL"] = c.URL()
	d.start("--worker", "web-1")
	d.says("fresh", fresh)
	if err := c.Nodes[0].Pause(); err != nil {
		t.Fatal(err)
	}
	d.enqueue(100) // with keys on each master
	d.wants("a Cluster's master is unreachable", time.Now(), "STALE", "tried again after a failure (redis_away): ", "see: unstale delayed list --reason redis_away")
	if err := c.Nodes[0].Resume(); err != nil {
		t.Fatal(err)
	}
	d.says("fresh", fresh)
}

// A replica that lags is promoted within seconds. The printed command removes what readers stored of
// the lost transactions.
func TestFastPromotionIsNamedInTime(t *testing.T) {
	t.Parallel()
	f := newFrail(t, testenv.ReplicaArgs...)
	replica := testenv.OwnReplica(t, f.mysql)
	// what newFrail created is older than the replica
	f.do("DROP DATABASE IF EXISTS shop", "DROP USER IF EXISTS 'unstale'@'%'", "CREATE DATABASE shop", "CREATE USER 'unstale'@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON shop.* TO 'unstale'@'%'")
	schematest.Up(t, f.db)
	d := &drill{judged{world: f.world}}
	d.start("--worker", "web-1")
	settle := func(n int) {
		t.Helper()
		for range n {
			d.enqueue(1)
			testenv.Eventually(t, "the row is settled", func() bool { return d.count("cache_outbox") == 0 })
		}
	}
	settle(2)
	replica.CatchUp(t)
	replica.Lag(t)
	settle(2)
	f.must(f.mysql.Kill())
	d.setKeys(3) // of the lost transactions
	began := time.Now()
	replica.Promote(t)
	f.must(f.toMySQL.Point(replica.Addr()))
	_ = d.db.Close() // its server is gone
	var err error
	d.db, err = sql.Open("mysql", replica.DSN("shop"))
	f.must(err)
	t.Cleanup(func() { _ = d.db.Close() })
	settle(1)
	d.wants("a replica that lags is promoted", began, "STALE", "the database is older than Redis", "failover to a replica that lagged", "unstale source restored")
	d.must(call(t, d.env, "source", "restored", "--map", d.env["UNSTALE_MAP"]))
	d.says("fresh", fresh)
	testenv.Eventually(t, "the names of the map are swept", func() bool { return d.keys() == 0 })
}

// The database's clock is set back by an hour while a row waits for its retry.
func TestClockSetBackIsNamedInTime(t *testing.T) {
	t.Parallel()
	own, file := testenv.OwnClock(t)
	file.Set(time.Hour)
	d := &drill{judged{world: newWorld(t)}}
	d.use(own)
	r := d.start("--worker", "web-1", "--retry-delay", "5m")
	d.says("fresh", fresh)
	d.redisDo("acl setuser default resetkeys ~unstale:* ~lock:*")
	d.enqueue(1)
	d.says("stale", "(redis_refused): 1 row")
	d.redisDo("acl setuser default allkeys")
	if err := servers.Freeze(r.cmd.Process); err != nil { // it would retry the row within seconds
		t.Fatal(err)
	}
	file.Set(0)
	d.wants("the database's clock is set back", time.Now(), "STALE", "the database's clock was set back", "if none runs: unstale delayed retry --reason redis_refused")
	d.must(call(t, d.env, "delayed", "retry", "--reason", "redis_refused"))
	r.signal(syscall.SIGCONT)
	d.says("fresh", fresh)
}
