//go:build soak

package main

import (
	"cmp"
	"database/sql"
	"maps"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// stopMap is thingMap with a captured table.
const stopMap = thingMap + "capture:\n  things: {entity: thing, id: id, watch: [name], on: [update]}\n"

// A stop is a fault that stops invalidation or leaves keys stale: one of docs/doctor.md.
type stop struct {
	name        string
	account     string // of the check; empty: worker
	plant, heal func()

	// The first line of status has these texts. None: status does not name the fault.
	status []string
	// check is the check of doctor that names the fault with the text finding. Empty: none does.
	check, finding string
	env            map[string]string // of doctor; nil: the worker's
	args           []string          // of doctor

	enqueue bool   // a row is inserted after the fault is planted
	unready bool   // /readyz is 503 meanwhile, and no output asks for more workers
	log     string // the worker's log has this fix
}

// Each of 16 faults of docs/doctor.md is planted in running servers. The first line of status,
// doctor or both name it, with the accounts that the page says, and no longer once it is healed.
func TestFaultsThatStopInvalidation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, byStatus, _ := strings.Cut(string(page), "`status` also names ")
	byStatus, _, _ = strings.Cut(strings.ReplaceAll(byStatus, "\n", " "), ".")
	d := newStopDrill(t, servers.BinaryLog...)
	stops := d.stops()
	named := 0
	for _, s := range stops {
		if s.check != "" && !pageFinds(string(page), s.check, cmp.Or(s.account, "worker"), s.name) {
			t.Errorf("docs/doctor.md does not name %s for %s", s.name, s.check)
		}
		// the check queue reports what status reports
		if listed := strings.Contains(byStatus, s.name); listed != (s.status != nil && s.check != "queue") {
			t.Errorf("docs/doctor.md: status also names %s: %v", s.name, listed)
		}
		if d.run(s); !t.Failed() {
			named++
		}
	}
	t.Logf("%d of %d faults are named", named, len(stops))
	d.worker.signal(syscall.SIGTERM)
	d.worker.wantExit(exitDone)
}

// A stopDrill has a worker, whose accounts are not the operator's.
type stopDrill struct {
	*frail
	worker   *running
	operator map[string]string
}

func newStopDrill(t *testing.T, mysqlArgs ...string) *stopDrill {
	t.Helper()
	d := &stopDrill{frail: newFrail(t, mysqlArgs...)}
	d.writeMap(stopMap)
	d.redisDo("ACL", "SETUSER", "carrier", "on", ">pw", "~*", "&*", "+@all")
	d.env["REDIS_URL"] = "redis://carrier:pw@" + d.toRedis.Addr() + "/0"
	d.operator = maps.Clone(d.env)
	d.operator["MYSQL_DSN"] = d.mysql.DSN("shop")
	d.do("CREATE TABLE shop.things (id INT PRIMARY KEY, name TEXT)")
	d.makeDefiner()
	d.startWorker()
	return d
}

func (d *stopDrill) writeMap(text string) {
	d.t.Helper()
	d.must(os.WriteFile(d.env["UNSTALE_MAP"], []byte(text), 0o600))
}

// makeDefiner creates the account that triggers run as, and the triggers.
func (d *stopDrill) makeDefiner() {
	d.t.Helper()
	d.do("CREATE USER 'definer'@'%' IDENTIFIED BY 'x'", "GRANT ALL ON shop.* TO 'definer'@'%'")
	d.unstale(d.operator, "capture", "apply", "--definer", "definer@%")
}

func (d *stopDrill) startWorker() {
	d.t.Helper()
	d.worker = d.start("--worker", "web-1", "--claim-timeout", "3s")
	d.worker.until("the worker is ready", func() bool { return d.worker.ready() == http.StatusOK })
}

// run plants a fault, looks for it and heals it.
func (d *stopDrill) run(s stop) {
	d.t.Helper()
	s.plant()
	if s.enqueue {
		d.enqueue(1) // as root, who may write
	}
	if s.log != "" {
		d.worker.until(s.name+": the log has the fix", func() bool { return strings.Contains(d.worker.log.String(), s.log) })
	}
	if s.status != nil {
		told := d.drill().wants(s.name, time.Now(), s.status...)
		if s.unready && (strings.Contains(told, "start one") || strings.Contains(told, "more workers")) {
			d.t.Errorf("%s: it wants more workers: %s", s.name, told)
		}
	}
	if s.check != "" {
		env := s.env
		if env == nil {
			env = d.env
		}
		doctor := call(d.t, env, append([]string{"doctor", "--check", s.check}, s.args...)...)
		if doctor.code == exitDone || !strings.Contains(doctor.out, s.finding) {
			d.t.Errorf("%s: doctor %s: %+v", s.name, s.check, doctor)
		}
	}
	if s.unready {
		d.worker.until(s.name+": /readyz is 503", func() bool { return d.worker.ready() == http.StatusServiceUnavailable })
	}
	s.heal()
	d.worker.until(s.name+": it goes on", func() bool { return d.worker.ready() == http.StatusOK && d.count("cache_outbox") == 0 })
	if s.status != nil {
		d.worker.until(s.name+": status is well again", func() bool {
			return strings.HasPrefix(call(d.t, d.operator, "status").out, "nothing is stale")
		})
	}
	if s.check != "" {
		after := call(d.t, d.operator, append([]string{"doctor", "--check", s.check}, s.args...)...)
		if strings.Contains(after.out, s.finding) {
			d.t.Errorf("%s: doctor %s still finds it: %+v", s.name, s.check, after)
		}
	}
}

func (d *stopDrill) stops() []stop {
	audit := []string{"--audit-mysql-dsn", d.mysql.DSN("shop")}
	wrong := maps.Clone(d.env)
	wrong["REDIS_URL"] = strings.Replace(d.env["REDIS_URL"], ":pw@", ":nope@", 1)
	reader, err := d.db.BeginTx(d.t.Context(), nil)
	d.must(err)
	alter, holder := make(chan error, 1), (*sql.Tx)(nil)
	return []stop{
		{
			name: "no worker", enqueue: true,
			plant: func() { d.worker.signal(syscall.SIGTERM); d.worker.wantExit(exitDone) }, heal: d.startWorker,
			status: []string{"STALE since ", "the last was web-1, which was stopped", "1 row waits", "start one: unstale run"}, check: "queue", finding: "no worker",
		}, {
			name: "a frozen worker", enqueue: true,
			plant: func() { d.must(servers.Freeze(d.worker.cmd.Process)) }, heal: func() { d.worker.signal(syscall.SIGCONT) },
			status: []string{"STALE since ", "no worker has been heard for ", "the last was web-1; 1 row waits"}, check: "queue", finding: "fallen silent",
		}, {
			name: "a refused map",
			plant: func() {
				d.writeMap("version: 1\nentities: {thing: {keys: [\"x:{nope}\"]}}\n")
				d.worker.signal(syscall.SIGHUP)
			},
			heal:   func() { d.writeMap(stopMap); d.worker.signal(syscall.SIGHUP) },
			status: []string{"worker web-1 refuses the map's file as it is now", "nope", "unstale map check"}, check: "reach", finding: "nope",
		}, {
			name: "a missing grant", check: "mysql-rights", finding: "DELETE",
			plant: func() { d.do("REVOKE DELETE ON shop.* FROM 'unstale'@'%'") }, heal: func() { d.do("GRANT ALL ON shop.* TO 'unstale'@'%'") },
		}, {
			name: "a missing ACL rule", check: "redis-rights", finding: "unlink",
			plant: func() { d.redisDo("ACL", "SETUSER", "carrier", "-unlink") }, heal: func() { d.redisDo("ACL", "SETUSER", "carrier", "+unlink") },
		}, {
			name: "a wrong password of Redis", check: "reach", finding: "WRONGPASS", env: wrong,
			plant: func() {}, heal: func() {},
		}, {
			name: "a Redis that does not answer", enqueue: true,
			plant: func() { d.must(d.server.Pause()) }, heal: func() { d.must(d.server.Resume()) },
			status: []string{"worker web-1 is kept from working (redis timeout)", "1 row waits", "docs/operations.md#outages"}, unready: true,
		}, {
			name: "a locked account of MySQL", enqueue: true, unready: true,
			plant:  func() { d.do("ALTER USER 'unstale'@'%' ACCOUNT LOCK"); d.killSessions() },
			heal:   func() { d.do("ALTER USER 'unstale'@'%' ACCOUNT UNLOCK") },
			status: []string{"worker web-1 is kept from working (mysql refused): ", "ALTER USER ... ACCOUNT UNLOCK"}, check: "reach", finding: "ACCOUNT UNLOCK", log: "ALTER USER ... ACCOUNT UNLOCK",
		}, {
			name: "a read-only server", enqueue: true, unready: true,
			plant: func() { d.do("SET GLOBAL read_only = 1") }, heal: func() { d.do("SET GLOBAL read_only = 0") },
			status: []string{"MySQL is read-only, so workers cannot settle", "if it is this one: SET GLOBAL read_only = 0"},
			check:  "mysql-settings", finding: "read-only", log: "if it is this one: SET GLOBAL read_only = 0",
		}, {
			name: "an ALTER TABLE behind a transaction", unready: true,
			plant: func() {
				_, err := reader.Exec("SELECT COUNT(*) FROM cache_outbox")
				d.must(err)
				go func() {
					_, err := d.db.ExecContext(d.t.Context(), "ALTER TABLE cache_outbox COMMENT = 'x'")
					alter <- err
				}()
			}, heal: func() { d.must(reader.Rollback()); d.must(<-alter) },
			status: []string{"whether anything is stale is unknown: ", "docs/settings.md#sessions-that-wait"}, check: "queue", finding: "locked", log: "docs/settings.md#sessions-that-wait",
		}, {
			name: "a COMMIT that hangs", unready: true,
			plant:  func() { d.must(servers.HoldCommits(d.t.Context(), d.admin)) },
			heal:   func() { d.must(servers.ReleaseCommits(d.t.Context(), d.admin)) },
			status: []string{"worker web-1 is kept from working (mysql hung): a COMMIT has not returned since ", "free space on the disk of MySQL's binary log"},
			check:  "queue", finding: "(mysql hung)", log: "free space on the disk of MySQL's binary log",
		}, {
			name: "a locked row", unready: true,
			plant: func() {
				d.unstale(d.operator, "pause", "--until-resumed")
				d.worker.until("it rests", func() bool { return d.worker.log.has("paused: rows wait until") })
				d.enqueue(1)
				var err error
				holder, err = d.db.BeginTx(d.t.Context(), nil)
				d.must(err)
				_, err = holder.Exec("UPDATE cache_outbox SET trace = 'held'")
				d.must(err)
				d.unstale(d.operator, "resume")
			}, heal: func() { d.must(holder.Rollback()) },
			status: []string{"STALE since ", "docs/operations.md#a-row-is-held"}, check: "queue", finding: "locked",
		}, {
			name: "dead letters", check: "queue", finding: "unknown_entity: 1",
			plant: func() { d.do("INSERT INTO shop.cache_outbox (entity, entity_id) VALUES ('nobody', '1')") }, heal: func() { d.do("DELETE FROM shop.cache_outbox_dead") },
			status: []string{"1 dead letter (unknown_entity: 1), whose keys may be stale; see: unstale dead list"},
		}, {
			name: "a dropped trigger", account: "audit", check: "capture", finding: "missing", args: audit,
			plant: func() { d.unstale(d.operator, "capture", "drop", "--table", "things") }, heal: func() { d.unstale(d.operator, "capture", "apply", "--definer", "definer@%") },
		}, {
			name: "a dropped definer", account: "audit", check: "capture", finding: "1449", args: audit,
			plant: func() { d.do("DROP USER 'definer'@'%'") }, heal: d.makeDefiner,
		},
	}
}

// unstale runs a command that has to succeed.
func (f *frail) unstale(env map[string]string, args ...string) {
	f.t.Helper()
	if r := call(f.t, env, args...); r.code != exitDone {
		f.t.Fatalf("%q: %+v", args, r)
	}
}
