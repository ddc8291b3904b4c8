package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// The exit code goes by the worst finding, and the accounts that the help prints see all that an
// audit sees.
func TestDoctor(t *testing.T) {
	t.Parallel()
	env, server := testenv.MySQL(t), testenv.OwnRedis(t)
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte(thingMap), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": "redis://" + server.Addr(), "UNSTALE_MAP": file}
	want := func(code int, out, err string, args ...string) result {
		t.Helper()
		r := call(t, vars, append([]string{"doctor"}, args...)...)
		if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
			t.Errorf("%q: %+v, wanted %d, %q and %q", args, r, code, out, err)
		}
		return r
	}
	want(exitFail, "critical  schema ", "something is critical")
	schematest.Up(t, env.DB)
	want(exitDone, "0 critical, 0 warnings, 0 unknown, 2 ok\n", "", "--check", "reach", "--check", "schema")
	// by root
	want(exitWarning, "warning   mysql-rights", "there are warnings", "--check", "mysql-rights")
	want(exitDone, "unknown   queue              no worker", "", "--check", "queue")
	want(exitWarning, "unknown   queue", "something is unknown", "--check", "queue", "--strict")
	want(exitFail, "the map is refused", "something is critical", "--map", "nowhere.yaml", "--check", "reach")

	// Problems come first, and are not hidden by checks that are unknown because of them.
	away := maps.Clone(vars)
	away["MYSQL_DSN"] = "unstale:wrong@tcp(127.0.0.1:1)/shop"
	if r := call(t, away, "doctor"); r.code != exitFail || !strings.Contains(r.out, "\ncritical  reach              MySQL does not answer\n") ||
		strings.Count(r.out, "it needs MySQL\n") != 1 || !strings.Contains(r.out, "unknown   several checks     schema, mysql-rights, ") || strings.Count(r.out, "\n") > 30 {
		t.Errorf("%+v", r)
	}

	vars["UNSTALE_AUDIT_MYSQL_DSN"], vars["UNSTALE_AUDIT_REDIS_URL"] = auditAccounts(t, env, server)
	vars["REDIS_URL_STATE"] = stateAccount(t)
	// of the cache's server, which has nothing to do with the other one
	for _, db := range []string{"-1", "0"} {
		want(exitDone, "0 critical, 0 warnings, 0 unknown, 2 ok\n", "", "--check", "reach", "--check", "state", "--redis-db-cache", "1", "--redis-db-state", db)
	}
	want(exitWarning, "is the cache's", "there are warnings", "--check", "state", "--redis-url-state", server.URL())
	var told struct {
		Worst    doctor.Severity
		Counts   map[doctor.Severity]int
		Findings []doctor.Finding
	}
	r := want(exitWarning, "", "", "--json")
	if err := json.Unmarshal([]byte(r.out), &told); err != nil || told.Worst != doctor.Warning || told.Counts[doctor.Warning] == 0 || len(told.Findings) < len(doctor.Checks) {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, f := range told.Findings {
		switch f.Check {
		// unknown without a worker
		case "queue", "running-map", "beacon", "databases":
		default:
			if f.Severity == doctor.Unknown {
				t.Errorf("by the accounts of the help: %+v", f)
			}
		}
	}
}

// The help and the page name what each account of Redis needs besides in Cluster, where the tests
// of package doctor use the same.
func TestDoctorNamesRulesOfCluster(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for place, text := range map[string]struct {
		text  string
		times int
	}{"the help": {call(t, nil, "doctor", "--help").out, 1}, "docs/doctor.md": {string(page), strings.Count(string(page), "\nACL SETUSER ")}} {
		if n := strings.Count(text.text, doctor.ClusterRules); n != text.times {
			t.Errorf("%s names %s %d times, wanted %d", place, doctor.ClusterRules, n, text.times)
		}
	}
}

// doctor and status name a frozen worker, and one that uses another map.
func TestDoctorOfFrozenWorker(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	if !pageFinds(string(page), "queue", "worker", "a frozen worker") {
		t.Error("docs/doctor.md does not name a frozen worker for queue")
	}
	w := newWorld(t)
	r := w.start("--worker", "web-1")
	well := func() bool {
		return call(t, w.env, "doctor", "--check", "queue", "--check", "running-map", "--strict").code == exitDone
	}
	r.until("all is well", well)
	other := writeFile(t, strings.Replace(thingMap, "shop:", "another:", 1))
	if told := call(t, w.env, "doctor", "--check", "running-map", "--map", other); told.code != exitWarning || !strings.Contains(told.out, "worker web-1 uses map ") {
		t.Errorf("another map: %+v", told)
	}
	r.signal(syscall.SIGSTOP)
	w.enqueue(1)
	r.until("silence", func() bool {
		return w.count("cache_outbox_workers WHERE seen_at > UTC_TIMESTAMP(6) - INTERVAL 11 SECOND") == 0
	})
	told := call(t, w.env, "doctor", "--check", "queue")
	for _, says := range []string{"critical  queue", "no worker has been heard for", "1 row, the first for", "worker web-1 was last heard", "fallen silent"} {
		if told.code != exitFail || !strings.Contains(told.out, says) {
			t.Errorf("doctor does not say %q: %+v", says, told)
		}
	}
	if told := call(t, w.env, "status"); told.code != exitStale || !strings.HasPrefix(told.out, "STALE since ") || !strings.Contains(told.out, "the last was web-1; 1 row waits") {
		t.Errorf("status: %+v", told)
	}
	r.signal(syscall.SIGCONT)
	r.until("all is well again", well)
}

// pageFinds reports whether the table of docs/doctor.md has the fault for the check and the account.
func pageFinds(page, check, account, fault string) bool {
	_, row, found := strings.Cut(page, "\n| `"+check+"` | "+account+" | ")
	row, _, _ = strings.Cut(row, "\n")
	return found && slices.Contains(regexp.MustCompile(` *[|,] *`).Split(row, -1), fault)
}

// stateAccount makes an instance for state with the account of doctor's help, and returns where it
// is.
func stateAccount(t *testing.T) string {
	t.Helper()
	_, rules, found := strings.Cut(auditHelp, "ACL SETUSER unstale_state ")
	page, err := os.ReadFile("../../docs/doctor.md")
	if !found || err != nil || !strings.Contains(string(page), "\nACL SETUSER unstale_state "+rules) {
		t.Fatalf("doctor's help has the account %q, docs/doctor.md another one or none: %v", rules, err)
	}
	server := testenv.OwnRedis(t, append([]string{"--appendonly", "yes", "--user", "unstale_state"}, strings.Fields(rules)...)...)
	return fmt.Sprintf("redis://unstale_state:change-me-10@%s/0", server.Addr())
}

// auditAccounts creates the accounts as in doctor's help, and returns their URLs.
func auditAccounts(t *testing.T, env *testenv.Database, server *servers.Redis) (dsn, url string) {
	t.Helper()
	sections := map[string][]string{}
	name := ""
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(auditHelp) {
		if text := strings.TrimSpace(line); strings.HasSuffix(text, ";") && !strings.Contains(string(page), "\n"+text+"\n") {
			t.Errorf("docs/doctor.md lacks %q", text)
		}
		if title, ok := strings.CutSuffix(strings.TrimSpace(line), ":"); ok {
			name = title
			continue
		}
		sections[name] = append(sections[name], strings.TrimSuffix(strings.TrimSpace(line), ";"))
	}
	kind := "MySQL"
	if env.Flavor == servers.KindMariaDB {
		kind = "MariaDB"
	}
	// the server is the tests' own
	t.Cleanup(func() { _, _ = env.DB.Exec("DROP USER 'unstale_audit'@'%'") })
	for _, statement := range sections[kind] {
		if _, err := env.DB.ExecContext(t.Context(), strings.Replace(statement, "shop.", env.Name+".", 1)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for _, command := range sections["Redis"] {
		var words []any
		for _, word := range strings.Fields(command) {
			words = append(words, word)
		}
		if err := client.Do(t.Context(), words...).Err(); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	c, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c.User, c.Passwd = "unstale_audit", "change me 6"
	return c.FormatDSN(), fmt.Sprintf("redis://unstale_audit:change-me-7@%s", server.Addr())
}
