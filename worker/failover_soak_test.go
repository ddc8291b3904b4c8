//go:build soak

package worker_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A failover is a world with a primary of its own. The worker connects through a link, which leads
// to the primary.
type failover struct {
	*world
	primary *servers.MySQL
	replica *testenv.Replica // nil in a cluster
	link    *servers.Link
	source  string
	hashes  *keyspace.StatusHashes
	log     logBuffer
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	p := &failover{world: newWorld(t, plainMap), primary: testenv.OwnMySQL(t, testenv.ReplicaArgs...)}
	p.replica = testenv.OwnReplica(t, p.primary)
	p.create()
	return p
}

// create creates the outbox on the primary.
func (p *failover) create() {
	p.t.Helper()
	p.onOwnRedis()
	p.db = p.open(p.primary, "")
	p.exec("CREATE DATABASE shop")
	p.db = p.open(p.primary, "shop")
	schematest.Up(p.t, p.db)
	var err error
	if p.link, err = servers.NewLink("mysql", p.primary.Addr()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.link.Close)
	p.dsn = strings.Replace(p.primary.TCPDSN("shop"), p.primary.Addr(), p.link.Addr(), 1)
	if p.source, err = outbox.Source(p.t.Context(), p.db); err != nil {
		p.t.Fatal(err)
	}
	p.hashes = p.keyspace(5 * time.Second).StatusHashes
}

func (p *failover) open(server *servers.MySQL, database string) *sql.DB {
	p.t.Helper()
	db, err := sql.Open("mysql", server.DSN(database))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = db.Close() })
	return db
}

// settle has the worker settle n batches of one row each.
func (p *failover) settle(n int) {
	p.t.Helper()
	for range n {
		p.enqueue(things(1)...)
		testenv.Eventually(p.t, "the row is settled", func() bool { return p.count("cache_outbox") == 0 })
	}
}

// promote makes the replica the primary, to which the link and the application lead.
func (p *failover) promote() {
	p.t.Helper()
	p.replica.Promote(p.t)
	p.lead(p.replica.MySQL)
}

// lead leads the link and the application to a server.
func (p *failover) lead(to *servers.MySQL) {
	p.t.Helper()
	if err := p.link.Point(to.Addr()); err != nil {
		p.t.Fatal(err)
	}
	p.db = p.open(to, "shop")
}

// conflicts returns the conflicts that status reports. Two databases with one ID fail the test.
func (p *failover) conflicts() []store.Conflict {
	p.t.Helper()
	list, _, err := status.Conflicts(p.t.Context(), p.hashes, p.source)
	if err != nil {
		p.t.Fatal(err)
	}
	if slices.ContainsFunc(list, func(c store.Conflict) bool { return c.Kind == store.ConflictID }) {
		p.t.Fatalf("a false alarm: %+v", list)
	}
	return list
}

// wantOlder waits until the database is known to be older than Redis: at most 15 s after began.
func (p *failover) wantOlder(began time.Time) {
	p.t.Helper()
	var list []store.Conflict
	testenv.Eventually(p.t, "the loss is detected", func() bool { list = p.conflicts(); return len(list) > 0 })
	if took := time.Since(began); took > 15*time.Second || len(list) != 1 || list[0].Kind != store.ConflictRestored ||
		!strings.Contains(list[0].Text, "failover to a replica that lagged") || !strings.Contains(list[0].Cure, "unstale source restored") {
		p.t.Errorf("after %s: %+v", took, list)
	}
}

// wantServed waits until the worker has published its last batch, from a server that no record but
// its own is of, and checks that there was no alarm.
func (p *failover) wantServed() {
	p.t.Helper()
	var last uint64
	if err := p.db.QueryRowContext(p.t.Context(), "SELECT MAX(id) FROM cache_outbox_journal").Scan(&last); err != nil {
		p.t.Fatal(err)
	}
	testenv.Eventually(p.t, "the last batch is published", func() bool {
		if list := p.conflicts(); len(list) > 0 {
			p.t.Fatalf("a false alarm: %+v", list)
		}
		records := p.redis.HVals(p.t.Context(), "unstale:sources").Val()
		return len(records) == 1 && strings.Contains(records[0], fmt.Sprintf(`"last_id":%d}`, last))
	})
}

// A replica that is promoted without the last batches is detected, even if it settles more
// batches at once than it lacks: by the worker that had settled them, and by one that starts then.
func TestFailoverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"the same worker": false, "another worker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFailover(t)
			stop := p.run(p.url, &p.log)
			p.settle(2)
			p.replica.CatchUp(t)
			p.replica.Lag(t)
			p.settle(2)
			if restarts {
				p.wantServed() // only Redis has what the other worker knows
				stop()
			}
			if err := p.primary.Kill(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			p.promote()
			p.enqueue(things(1)...)
			if restarts {
				stop = p.run(p.url, &p.log)
			}
			defer func() { stop() }()
			p.settle(4)
			p.wantOlder(began)
			if err := status.ForgetDatabases(t.Context(), p.hashes, p.source); err != nil {
				t.Fatal(err)
			}
			p.settle(1)
			p.wantServed()
		})
	}
}

// A switch to a replica that has everything is not an alarm, even if the old primary goes on as a
// read-only replica to which the worker has connections.
func TestPlannedSwitch(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"the same worker": false, "another worker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFailover(t)
			stop := p.run(p.url, &p.log)
			defer func() { stop() }()
			p.settle(3)
			p.wantServed()
			p.settle(1)
			p.exec("SET GLOBAL read_only = 1")
			p.replica.CatchUp(t)
			if restarts {
				stop()
			}
			p.promote()
			if restarts {
				stop = p.run(p.url, &p.log)
			}
			p.settle(3)
			p.wantServed()
		})
	}
}

// Another member of a cluster is no other database, whether the primary was switched or killed, and
// even if both serve a worker.
func TestSwitchInACluster(t *testing.T) {
	t.Parallel()
	p := &failover{world: newWorld(t, plainMap)}
	var nodes []*servers.MySQL
	if testenv.OwnFlavor(t) == servers.KindMariaDB {
		nodes = testenv.OwnGalera(t, 3)
	} else {
		nodes = testenv.OwnGroup(t, servers.GroupOptions{Args: []string{"--super-read-only=ON"}}).Nodes
	}
	p.primary = nodes[0]
	p.create()
	stop := p.run(p.url, &p.log)
	p.settle(3)
	p.wantServed()
	server := p.servers()
	if nodes[0].Flavor() == servers.KindMySQL {
		admin, uuid := p.open(nodes[1], ""), ""
		if err := admin.QueryRowContext(t.Context(), "SELECT @@server_uuid").Scan(&uuid); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.ExecContext(t.Context(), fmt.Sprintf("SELECT group_replication_set_as_primary('%s')", uuid)); err != nil { // which takes no parameter
			t.Fatal(err)
		}
	}
	p.lead(nodes[1])
	p.settle(3)
	p.wantServed()
	if err := nodes[1].Kill(); err != nil {
		t.Fatal(err)
	}
	others := map[*servers.MySQL]*sql.DB{nodes[0]: p.open(nodes[0], "shop"), nodes[2]: p.open(nodes[2], "shop")}
	testenv.Eventually(t, "another member takes writes", func() bool {
		for node, db := range others {
			if _, err := db.ExecContext(t.Context(), "INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', '1')"); err == nil {
				p.lead(node)
				return true
			}
		}
		return false
	})
	p.settle(3)
	p.wantServed()
	stop()
	defer p.run(p.url, &p.log)()
	p.settle(1)
	p.wantServed()
	if now := p.servers(); now != server || strings.Contains(now, "127.0.0.1") {
		t.Errorf("the database is on %s, and was on %s", now, server)
	}
}

// Workers on two nodes that take writes settle each row once. That the other one was first is counted,
// and no outage.
func TestWorkersOnTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := testenv.OwnPrimaries(t)
	p := &failover{world: newWorld(t, plainMap), primary: nodes[0]}
	p.create()
	var all []*running
	for _, node := range nodes {
		on := *p.world
		on.dsn, on.db = node.TCPDSN("shop"), p.open(node, "shop")
		testenv.Eventually(t, "the tables on the node", func() bool {
			_, err := on.db.ExecContext(t.Context(), "SELECT id FROM cache_outbox_shadow")
			return err == nil
		})
		r := on.worker(worker.Config{BatchRows: 20})
		r.start(t)
		all = append(all, r)
	}
	contended := func() (n float64) {
		for _, r := range all {
			n += metric(t, r, "unstale_contention_total")
		}
		return n
	}
	rows := 0
	for ; rows < 2000 || contended() == 0; rows += 200 {
		p.enqueue(things(200)...)
	}
	testenv.Eventually(t, "all rows are settled", func() bool { return p.count("cache_outbox") == 0 })
	settled := p.journalled()
	for id, n := range settled {
		if n != 1 {
			t.Errorf("row %d was settled %d times", id, n)
		}
	}
	if len(settled) != rows {
		t.Errorf("%d of %d rows were settled", len(settled), rows)
	}
	for _, r := range all {
		if n := r.log.count("outage"); n != 0 {
			t.Errorf("%d outages: %s", n, r.log)
		}
	}
	t.Logf("%d rows, %.0f collisions", rows, contended())
}

// servers returns the server of the one record.
func (p *failover) servers() string {
	p.t.Helper()
	records := p.redis.HVals(p.t.Context(), "unstale:sources").Val()
	var d status.Database
	if len(records) != 1 {
		p.t.Fatalf("records: %q", records)
	}
	_, text, _ := strings.Cut(records[0], " ")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		p.t.Fatal(err)
	}
	return d.Server
}

// newSingle returns a failover whose database has one server.
func newSingle(t *testing.T) *failover {
	t.Helper()
	p := &failover{world: newWorld(t, plainMap)}
	p.onOwnRedis()
	var err error
	if p.source, err = outbox.Source(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	p.hashes = p.keyspace(5 * time.Second).StatusHashes
	return p
}

// A dump that is loaded while the worker runs is detected, even if the worker has published none of
// the lost batches, and settles more of them at once.
func TestDumpLoadedIntoARunningDatabase(t *testing.T) {
	t.Parallel()
	p := newSingle(t)
	defer p.run(p.url, &p.log)()
	p.settle(1)
	p.exec("CREATE TABLE dump LIKE cache_outbox_journal")
	p.exec("INSERT INTO dump SELECT * FROM cache_outbox_journal")
	p.wantServed()
	p.settle(2)
	began := time.Now()
	p.exec("DROP TABLE cache_outbox_journal")
	p.exec("CREATE TABLE cache_outbox_journal LIKE dump")
	p.exec("INSERT INTO cache_outbox_journal SELECT * FROM dump")
	p.settle(4)
	p.wantOlder(began)
}

// Retention that deletes published batches is not an alarm.
func TestJournalThatIsDeletedByRetention(t *testing.T) {
	t.Parallel()
	p := newSingle(t)
	defer p.run(p.url, &p.log)()
	p.settle(2)
	p.wantServed()
	p.settle(2)
	p.exec("DELETE FROM cache_outbox_journal")
	p.settle(1)
	p.wantServed()
}
