package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// begin starts a command line in a separate process.
func begin(t testing.TB, env map[string]string, args ...string) *running {
	t.Helper()
	r := &running{t: t, log: &syncBuffer{}, over: make(chan struct{})}
	r.cmd = child(context.Background(), env, args...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.over) }() // ProcessState has the exit status
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.over
	})
	return r
}

// Only a regular file is read as a map, so a pipe without a writer cannot block the command.
func TestMapIsARegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link, folder := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "folder")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(writeFile(t, thingMap), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 33<<20); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		pipe: "is not a regular file (prw", folder: "is not a regular file (drwx", large: "has more than 32 MiB; is it a map?", "/dev/null": "is not a regular file",
	} {
		r := begin(t, nil, "map", "check", file)
		r.wantExit(exitFail)
		if !r.log.has(want) {
			t.Errorf("%s: %s", file, r.log)
		}
	}
	r := begin(t, nil, "map", "check", link)
	r.wantExit(exitDone)
}

// The first signal ends any command, with the exit code that a shell would return.
func TestFirstSignalEndsACommand(t *testing.T) {
	t.Parallel()
	var large strings.Builder
	large.WriteString("version: 1\nentities:\n")
	for i := range 400_000 { // parsing it asks no context
		large.WriteString("  e" + strings.Repeat("x", 20) + strconv.Itoa(i) + ": {keys: [\"{id}\"]}\n")
	}
	file := writeFile(t, large.String())
	r := begin(t, nil, "map", "check", file)
	r.until("it reads the map", func() bool { return memory(r.cmd.Process.Pid) > 64<<10 })
	r.signal(syscall.SIGTERM)
	r.wantExit(143)
	if r.log.has("is good") || !r.log.has("stopped by terminated") {
		t.Errorf("%s", r.log)
	}
}

// The first signal ends a step that is refused its lock.
func TestFirstSignalEndsAWaitingMigration(t *testing.T) {
	t.Parallel()
	_, variables, holder := beforeTheLastStatement(t)
	r := begin(t, variables, "migrate", "up")
	r.until("it says what it waits for", func() bool { return r.log.has("step 00032_baseline.sql waits for a lock") })
	r.signal(syscall.SIGINT)
	r.wantExit(130)
	if r.log.has("applied") || !r.log.has("while step 00032_baseline.sql waited for a lock") {
		t.Errorf("%s", r.log)
	}
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if r := call(t, variables, "migrate", "up"); r.code != exitDone || !strings.Contains(r.out, "applied 00032_baseline.sql") {
		t.Errorf("%+v", r)
	}
}

// A step that gets its lock after the first signal is finished. If it was the last step, nothing is
// left to interrupt.
func TestFirstSignalFinishesAStep(t *testing.T) {
	t.Parallel()
	env, variables, holder := beforeTheLastStatement(t)
	r := begin(t, variables, "migrate", "up")
	r.until("a step waits", func() bool {
		var n int
		err := env.DB.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'").Scan(&n)
		return err == nil && n == 1
	})
	r.signal(syscall.SIGINT)
	r.until("it says what it waits for", func() bool { return r.log.has("stopping: the current step is finished") })
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	r.wantExit(exitDone)
	if !r.log.has("applied 00032_baseline.sql in ") {
		t.Errorf("%s", r.log)
	}
	if r := call(t, variables, "migrate", "up"); r.code != exitDone || !strings.Contains(r.out, "nothing to apply") {
		t.Errorf("%+v", r)
	}
}

// A migration reports once what it waits for, and continues when the lock is free.
func TestMigrationWaitsForALock(t *testing.T) {
	t.Parallel()
	_, variables, holder := beforeTheLastStatement(t)
	r := begin(t, variables, "migrate", "up")
	r.until("it says what it waits for", func() bool { return r.log.has("step 00032_baseline.sql waits for a lock") })
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	r.wantExit(exitDone)
	if !r.log.has("applied 00032_baseline.sql in ") {
		t.Errorf("%s", r.log)
	}
}

// beforeTheLastStatement returns a schema whose baseline was interrupted before its last statement,
// which waits for the transaction that is returned.
func beforeTheLastStatement(t *testing.T) (*testenv.Database, map[string]string, *sql.Tx) {
	t.Helper()
	env := testenv.MySQL(t)
	p, err := migrations.Provider(env.DB)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), schema.Baseline); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"ALTER TABLE cache_outbox_version DROP COLUMN oldest", "DELETE FROM cache_outbox_version WHERE version_id > 0"} {
		if _, err := env.DB.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback() })
	if err := holder.QueryRow("SELECT COUNT(*) FROM cache_outbox_version").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	return env, map[string]string{"MYSQL_DSN": env.DSN}, holder
}

// memory returns how many KiB a process has in memory.
func memory(pid int) (n int) {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // it may be gone
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	_, _ = fmt.Sscan(after, &n)
	return n
}
