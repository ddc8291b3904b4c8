package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
)

// writeSecret puts text and a newline into a file, in one step, as an orchestrator does.
func writeSecret(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Every secret may come from a file that a variable names. Errors name the file and not its
// content.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad, empty, missing := file("bad", "hush-hush\n"), file("empty", "\n"), filepath.Join(dir, "missing")
	dsn, url := file("dsn", "u:hush-hush@tcp(127.0.0.1:1)/d\r\n"), file("url", "redis://:hush-hush@127.0.0.1:1\n")
	lines := file("lines", "u@tcp(127.0.0.1:1)/d\n# hush-hush\n")
	well := map[string]string{"MYSQL_DSN_FILE": dsn, "REDIS_URL_FILE": url}
	for _, c := range []struct {
		change map[string]string
		args   []string
		want   string
	}{
		{map[string]string{"MYSQL_DSN": "x"}, []string{"run"}, "MYSQL_DSN and MYSQL_DSN_FILE are both set; unset one of them"},
		{map[string]string{"REDIS_URL": "x"}, []string{"run"}, "REDIS_URL and REDIS_URL_FILE are both set; unset one of them"},
		{map[string]string{"UNSTALE_MESSAGE_KEY": "x", "UNSTALE_MESSAGE_KEY_FILE": bad}, []string{"run"}, "UNSTALE_MESSAGE_KEY and UNSTALE_MESSAGE_KEY_FILE are both set"},
		{map[string]string{"MYSQL_DSN_FILE": missing}, []string{"run"}, "MYSQL_DSN_FILE: open " + missing + ": no such file"},
		{map[string]string{"REDIS_URL_FILE": empty}, []string{"run"}, "REDIS_URL_FILE: " + empty + " is empty"},
		{map[string]string{"MYSQL_DSN_FILE": bad}, []string{"status"}, "mysql dsn: invalid DSN"},
		{map[string]string{"MYSQL_DSN_FILE": lines}, []string{"run"}, "MYSQL_DSN_FILE: " + lines + " has several lines"},
		{map[string]string{"REDIS_URL_FILE": lines}, []string{"run"}, "REDIS_URL_FILE: " + lines + " has several lines"},
		{map[string]string{"UNSTALE_MESSAGE_KEY_FILE": lines}, []string{"run"}, "UNSTALE_MESSAGE_KEY_FILE: " + lines + " has several lines"},
		{map[string]string{"UNSTALE_CONSOLE": "127.0.0.1:0", "UNSTALE_CONSOLE_TOKEN_FILE": lines}, []string{"run"}, "--console-token-file: " + lines + " has several lines"},
		{map[string]string{"REDIS_URL_FILE": bad}, []string{"run"}, "must begin with redis://"},
		{map[string]string{"UNSTALE_MESSAGE_KEY_FILE": bad}, []string{"run"}, "--message-key: a message key has 9 bytes"},
		{map[string]string{"UNSTALE_AUDIT_MYSQL_DSN_FILE": missing}, []string{"doctor"}, "UNSTALE_AUDIT_MYSQL_DSN_FILE: open " + missing},
		{map[string]string{"UNSTALE_AUDIT_REDIS_URL_FILE": missing}, []string{"doctor"}, "UNSTALE_AUDIT_REDIS_URL_FILE: open " + missing},
		{map[string]string{"REDIS_URL_STATE_FILE": missing}, []string{"doctor"}, "REDIS_URL_STATE_FILE: open " + missing},
	} {
		env := maps.Clone(well)
		maps.Copy(env, c.change)
		if r := call(t, env, c.args...); r.code != exitUsage || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "hush") || strings.Contains(r.err, "no effect") {
			t.Errorf("%v: %+v, wanted %q", c.change, r, c.want)
		}
	}
	if r := call(t, well, "status", "--mysql-dsn", "u@tcp(127.0.0.1:1)/"); r.code != exitUsage || !strings.Contains(r.err, "names no database") {
		t.Errorf("a flag does not take precedence: %+v", r)
	}
}

// While a worker runs, the passwords of both of its accounts change: the server's first, then the
// file's. The worker waits meanwhile, and then it processes rows with the new ones.
func TestRotatedPasswords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := fmt.Sprint("rotated_", os.Getpid())
	cfg, err := mysql.ParseDSN(w.env["MYSQL_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := w.db.ExecContext(t.Context(), fmt.Sprintf(query, args...)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	dsnFile, urlFile := filepath.Join(dir, "dsn"), filepath.Join(dir, "url")
	write := func(password string) (dsn, url string) {
		now := cfg.Clone()
		now.User, now.Passwd = user, password
		return now.FormatDSN(), fmt.Sprintf("redis://worker:%s@%s/0", password, w.server.Addr())
	}
	exec("CREATE USER '%s'@'%%' IDENTIFIED BY 'first-hush'", user)
	t.Cleanup(func() { _, _ = w.db.Exec("DROP USER '" + user + "'@'%'") })
	exec("GRANT ALL ON %s.* TO '%s'@'%%'", cfg.DBName, user)
	testenv.SetUser(t, w.redis, "worker", "on", ">first-hush", "~*", "&*", "+@all")
	dsn, url := write("first-hush")
	writeSecret(t, dsnFile, dsn)
	writeSecret(t, urlFile, url)
	delete(w.env, "MYSQL_DSN")
	delete(w.env, "REDIS_URL")
	w.env["MYSQL_DSN_FILE"], w.env["REDIS_URL_FILE"] = dsnFile, urlFile

	r := w.start()
	done := func() bool { return w.keys() == 0 && w.count("cache_outbox") == 0 }
	w.fill(2)
	r.until("the first rows", done)
	dsn, url = write("second-hush")

	exec("ALTER USER '%s'@'%%' IDENTIFIED BY 'second-hush'", user)
	ids := testenv.Sessions(t, w.db, "user = '"+user+"'")
	if len(ids) == 0 {
		t.Fatal("the worker has no connection of its account")
	}
	for _, id := range ids {
		_, _ = w.db.Exec(fmt.Sprint("KILL CONNECTION ", id)) // it may have ended
	}
	r.until("MySQL refuses the old password", func() bool { return r.log.has("Access denied") })
	writeSecret(t, dsnFile, dsn)

	w.fill(2)
	r.until("rows with MySQL's new password", done)
	testenv.SetUser(t, w.redis, "worker", "resetpass", ">second-hush")
	if n, err := w.redis.ClientKillByFilter(t.Context(), "user", "worker").Result(); err != nil || n == 0 {
		t.Fatalf("%d connections killed: %v", n, err)
	}
	w.fill(2)
	r.until("Redis refuses the old password", func() bool { return r.log.has("redis outage (auth)") })
	writeSecret(t, urlFile, url)
	r.until("rows with the new password of Redis", done)
	if r.log.has("-hush") {
		t.Error("the log has a password")
	}
	r.signal(os.Interrupt)
	r.wantExit(exitDone)
}
