package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// A frail is a world whose servers, and the worker's links to them, can be broken.
type frail struct {
	*world
	mysql            *servers.MySQL
	admin            *sql.DB // root, directly
	toMySQL, toRedis *servers.Link
}

func newLink(t testing.TB, name, upstream string) *servers.Link {
	t.Helper()
	l, err := servers.NewLink(name, upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func newFrail(t testing.TB, mysqlArgs ...string) *frail {
	t.Helper()
	w := newWorld(t)
	f := &frail{world: w, mysql: testenv.OwnMySQL(t, mysqlArgs...), toRedis: newLink(t, "redis", w.server.Addr())}
	f.toMySQL = newLink(t, "mysql", f.mysql.Addr())
	var err error
	if f.admin, err = sql.Open("mysql", f.mysql.DSN("")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.admin.Close() })
	f.do("CREATE DATABASE shop", "CREATE USER 'unstale'@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON shop.* TO 'unstale'@'%'")
	if w.db, err = sql.Open("mysql", f.mysql.DSN("shop")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	schematest.Up(t, w.db)
	w.env["MYSQL_DSN"] = "unstale:secret@tcp(" + f.toMySQL.Addr() + ")/shop"
	w.env["REDIS_URL"] = "redis://" + f.toRedis.Addr() + "/0"
	w.env["UNSTALE_LISTEN"] = "127.0.0.1:0"
	return f
}

// do runs statements as root.
func (f *frail) do(statements ...string) {
	f.t.Helper()
	for _, s := range statements {
		if _, err := f.admin.ExecContext(context.WithoutCancel(f.t.Context()), s); err != nil {
			f.t.Fatalf("%s: %v", s, err)
		}
	}
}

// redisDo runs a command on the worker's Redis, directly.
func (f *frail) redisDo(args ...any) {
	f.t.Helper()
	if err := f.redis.Do(f.t.Context(), args...).Err(); err != nil {
		f.t.Fatalf("%q: %v", args, err)
	}
}

func (f *frail) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// An outage is one way to break a server, and to fix it.
type outage struct {
	state        string // in the log
	breakIt, fix func(f *frail)
}

var outages = map[string]outage{
	"redis refuses": {"redis network", func(f *frail) { f.toRedis.Close() }, func(f *frail) { f.must(f.toRedis.Open()) }},
	"redis resets":  {"redis network", func(f *frail) { f.must(f.toRedis.Reset()) }, func(f *frail) { f.must(f.toRedis.Heal(f.t.Context())) }},
	"redis is a black hole": {"redis timeout", func(f *frail) { f.must(f.toRedis.Swallow()) },
		func(f *frail) { f.must(f.toRedis.Heal(f.t.Context())) }},
	"redis is slow":      {"redis timeout", func(f *frail) { f.must(f.toRedis.Slow(400)) }, func(f *frail) { f.must(f.toRedis.Heal(f.t.Context())) }},
	"redis stands still": {"redis timeout", func(f *frail) { f.must(f.server.Pause()) }, func(f *frail) { f.must(f.server.Resume()) }},
	"redis is full": {"redis oom", func(f *frail) { f.redisDo("config", "set", "maxmemory", "1") },
		func(f *frail) { f.redisDo("config", "set", "maxmemory", "0") }},
	"redis is a replica": {"redis readonly", func(f *frail) { f.redisDo("replicaof", "127.0.0.1", "1") },
		func(f *frail) { f.redisDo("replicaof", "no", "one") }},
	"redis' master is down": {"redis masterdown", func(f *frail) {
		f.redisDo("config", "set", "replica-serve-stale-data", "no")
		f.redisDo("replicaof", "127.0.0.1", "1")
	}, func(f *frail) { f.redisDo("replicaof", "no", "one") }},
	"redis may not be written": {"redis noperm", func(f *frail) { f.redisDo("acl", "setuser", "default", "-set") },
		func(f *frail) { f.redisDo("acl", "setuser", "default", "+set") }},
	"mysql refuses": {"mysql", func(f *frail) { f.toMySQL.Close() }, func(f *frail) { f.must(f.toMySQL.Open()) }},
	"mysql resets":  {"mysql", func(f *frail) { f.must(f.toMySQL.Reset()) }, func(f *frail) { f.must(f.toMySQL.Heal(f.t.Context())) }},
	"mysql is a black hole": {"mysql", func(f *frail) { f.must(f.toMySQL.Swallow()) },
		func(f *frail) { f.must(f.toMySQL.Heal(f.t.Context())) }},
	"mysql is slow":      {"mysql", func(f *frail) { f.must(f.toMySQL.Slow(6000)) }, func(f *frail) { f.must(f.toMySQL.Heal(f.t.Context())) }},
	"mysql stands still": {"mysql", func(f *frail) { f.must(f.mysql.Pause()) }, func(f *frail) { f.must(f.mysql.Resume()) }},
	"mysql is read-only": {"mysql", func(f *frail) { f.do("SET GLOBAL read_only = 1") }, func(f *frail) { f.do("SET GLOBAL read_only = 0") }},
	"mysql has too many connections": {"mysql", func(f *frail) {
		f.do("SET GLOBAL max_connections = 10")
		for f.killSessions() > 0 { // and take their places
			for {
				conn, err := f.db.Conn(f.t.Context())
				if err != nil {
					break
				}
				f.t.Cleanup(func() { _ = conn.Close() })
			}
		}
	}, func(f *frail) { f.do("SET GLOBAL max_connections = 200") }},
}

// killSessions ends all of the worker's sessions and returns how many there were.
func (f *frail) killSessions() (n int) {
	f.t.Helper()
	ids := testenv.Sessions(f.t, f.admin, "user = 'unstale'")
	for _, id := range ids {
		// it may be gone already
		_, _ = f.admin.ExecContext(f.t.Context(), fmt.Sprint("KILL CONNECTION ", id))
	}
	return len(ids)
}

// saysOutage reports whether the log has the line of an outage with the state. A lost subscription
// to wake-ups names one too.
func (r *running) saysOutage(state string) bool {
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "outage: rows wait") && strings.Contains(line, `"state":"`+state+`"`) {
			return true
		}
	}
	return false
}

// ready returns the status of /readyz.
func (r *running) ready() int {
	status, _ := r.readyz()
	return status
}

// readyz returns the status and the body of /readyz, or 0 if the worker does not answer yet.
func (r *running) readyz() (status int, body string) {
	for line := range strings.Lines(r.log.String()) {
		if _, rest, found := strings.Cut(line, `"serving metrics and health","address":"`); found {
			address, _, _ := strings.Cut(rest, `"`)
			response, err := http.Get("http://" + address + "/readyz")
			if err != nil {
				return 0, ""
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			return response.StatusCode, string(text)
		}
	}
	return 0, ""
}

// Sentence 7, for each way in which a server can be unavailable: the worker logs its state once,
// is not ready, counts no attempt, and recovers.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, o := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFrail(t)
			if name == "mysql is read-only" && f.mysql.Flavor() == servers.KindMySQL {
				o.breakIt = func(f *frail) { f.do("SET GLOBAL super_read_only = 0", "SET GLOBAL read_only = 1") }
			}
			r := f.start()
			r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
			f.setKeys(3)
			o.breakIt(f)
			// otherwise it waits for the next check of the beacon
			if !strings.HasPrefix(name, "mysql") {
				f.enqueue(3)
			} else if name == "mysql is read-only" {
				f.enqueue(3) // as root
			}
			r.until("the outage shows", func() bool { return r.saysOutage(o.state) })
			if got := r.ready(); got != http.StatusServiceUnavailable {
				t.Errorf("/readyz is %d during the outage", got)
			}
			o.fix(f)
			fixed := time.Now()
			r.until("the outage is over", func() bool { return r.log.has("outage is over") })
			t.Logf("%s: at work %s after it was fixed", name, time.Since(fixed).Round(time.Millisecond))
			if strings.HasPrefix(name, "mysql") && name != "mysql is read-only" {
				f.enqueue(3)
			}
			r.until("the keys go", func() bool { return f.keys() == 0 && f.count("cache_outbox") == 0 })
			if got := r.ready(); got != http.StatusOK {
				t.Errorf("/readyz is %d after the outage", got)
			}
			if n := f.count("cache_outbox_delayed") + f.count("cache_outbox_dead"); n != 0 {
				t.Errorf("%d rows were taken to be at fault", n)
			}
			for _, line := range []string{`outage: rows wait, nothing is lost; trying again","state":"` + o.state + `"`, "outage is over"} {
				if n := strings.Count(r.log.String(), line); n != 1 {
					t.Errorf("%d lines %q, wanted 1:\n%s", n, line, r.log)
				}
			}
		})
	}
}

// A killed session is not an outage, or a short one: the worker continues, and settles nothing
// twice.
func TestKilledSessions(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	r := f.start("--batch-rows", "10")
	r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	f.fill(500)
	for range 5 {
		settled := f.count("cache_outbox_journal")
		f.killSessions()
		r.until("a batch is settled", func() bool {
			return f.count("cache_outbox_journal") > settled || f.count("cache_outbox") == 0
		})
	}
	r.until("all rows are settled", func() bool { return f.count("cache_outbox") == 0 })
	f.checkDone(500)
	if n := f.count("cache_outbox_delayed") + f.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d rows were taken to be at fault", n)
	}
}

// With --redis-wait a row waits until a replica has its UNLINK.
func TestRedisWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(3)
	r := w.start("--redis-wait", "1")
	r.until("the outage shows", func() bool { return r.saysOutage("redis noreplicas") })
	if n := w.count("cache_outbox"); n != 3 {
		t.Errorf("%d rows wait for a replica, wanted 3", n)
	}
	replica := testenv.OwnRedis(t)
	follower := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	t.Cleanup(func() { _ = follower.Close() })
	if err := follower.Do(t.Context(), "replicaof", "127.0.0.1", w.server.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	r.until("the rows go", func() bool { return w.count("cache_outbox") == 0 && w.keys() == 0 })
	if n := w.count("cache_outbox_delayed") + w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d rows were taken to be at fault", n)
	}
}
