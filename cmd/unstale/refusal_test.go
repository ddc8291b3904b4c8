package main

import (
	"database/sql"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// A MySQL that answers and cannot be written, or has a row locked, is named by status, doctor
// (without the account of an audit), /readyz and the log, with the fix. None asks for more workers.
func TestMySQLCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := newFrail(t, servers.BinaryLog...)
	r := f.start("--worker", "web-1", "--claim-timeout", "3s")
	r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	operator := maps.Clone(f.env)
	operator["MYSQL_DSN"] = f.mysql.DSN("shop")
	reader, err := f.db.BeginTx(t.Context(), nil)
	f.must(err)
	alter, holder := make(chan error, 1), (*sql.Tx)(nil)
	for _, fault := range []struct {
		name, says, fix, doctor string
		enqueue                 bool // afterwards
		plant, heal             func()
	}{
		{"read-only", "MySQL is read-only, so workers cannot settle", "SET GLOBAL super_read_only = 0 and read_only = 0 if it is the primary", "MySQL is read-only", true,
			func() { f.do("SET GLOBAL read_only = 1") }, func() { f.do("SET GLOBAL read_only = 0") }},
		{"a locked account", "worker web-1 is kept from working (mysql refused): ", "ALTER USER ... ACCOUNT UNLOCK", "ACCOUNT UNLOCK", true,
			func() { f.do("ALTER USER 'unstale'@'%' ACCOUNT LOCK"); f.killSessions() }, func() { f.do("ALTER USER 'unstale'@'%' ACCOUNT UNLOCK") }},
		{"an ALTER TABLE behind a transaction", "whether anything is stale is unknown: ", "docs/sessions.md#sessions-that-wait", "locked", false,
			func() {
				_, err := reader.Exec("SELECT COUNT(*) FROM cache_outbox")
				f.must(err)
				go func() {
					_, err := f.db.ExecContext(t.Context(), "ALTER TABLE cache_outbox COMMENT = 'x'")
					alter <- err
				}()
			}, func() { f.must(reader.Rollback()); f.must(<-alter) }},
		{"a COMMIT that hangs", "worker web-1 is kept from working (mysql hung): a COMMIT has not returned since ", "free space on the disk of MySQL's binary log", "(mysql hung)", false,
			func() { f.must(servers.HoldCommits(t.Context(), f.admin)) }, func() { f.must(servers.ReleaseCommits(t.Context(), f.admin)) }},
		{"a held row", "(thing) waits, and workers pass it over: a session has it locked", "docs/runbook.md#a-row-is-held", "workers pass it over", false,
			func() {
				f.unstale(operator, "pause")
				r.until("it rests", func() bool { return r.log.has("paused: rows wait until") })
				f.enqueue(1)
				var err error
				holder, err = f.db.BeginTx(t.Context(), nil)
				f.must(err)
				_, err = holder.Exec("UPDATE cache_outbox SET trace = 'held'")
				f.must(err)
				f.unstale(operator, "resume")
			}, func() { f.must(holder.Rollback()) }},
	} {
		fault.plant()
		if fault.enqueue {
			f.enqueue(1) // as root, who may write
		}
		r.until(fault.name+": the log has the fix", func() bool {
			return strings.Contains(r.log.String(), fault.fix)
		})
		var told result
		r.until(fault.name+": status names it", func() bool {
			told = call(t, operator, "status")
			first, _, _ := strings.Cut(told.out+told.err, "\n")
			return strings.Contains(first, fault.says) && strings.Contains(first, fault.fix)
		})
		if doctor := call(t, operator, "doctor", "--check", "queue"); doctor.code == exitDone || !strings.Contains(doctor.out, fault.doctor) {
			t.Errorf("%s: doctor: %+v", fault.name, doctor)
		}
		if strings.Contains(told.out+told.err, "start one") || strings.Contains(told.out+told.err, "more workers") {
			t.Errorf("%s: it wants more workers: %+v", fault.name, told)
		}
		if got := r.ready(); got != http.StatusServiceUnavailable {
			t.Errorf("%s: /readyz is %d", fault.name, got)
		}
		fault.heal()
		r.until(fault.name+": it goes on", func() bool { return r.ready() == http.StatusOK && f.count("cache_outbox") == 0 })
	}
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
}

// unstale runs a command that has to succeed.
func (f *frail) unstale(env map[string]string, args ...string) {
	f.t.Helper()
	if r := call(f.t, env, args...); r.code != exitDone {
		f.t.Fatalf("%q: %+v", args, r)
	}
}
