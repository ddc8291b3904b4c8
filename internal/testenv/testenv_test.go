package testenv

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// leakVariable makes this test binary leak a goroutine.
const leakVariable = "UNSTALE_TESTENV_TEST_LEAK"

func TestMain(m *testing.M) {
	if os.Getenv(leakVariable) != "" {
		go func() { select {} }()
	}
	Main(m)
}

func TestMySQLIsEmptyAndOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := MySQL(t), MySQL(t)
	if a.Name == b.Name {
		t.Fatalf("two databases are called %s", a.Name)
	}
	for _, d := range []*Database{a, b} {
		if _, err := d.DB.ExecContext(t.Context(), "CREATE TABLE t (id INT PRIMARY KEY)"); err != nil {
			t.Error(err)
		}
		if _, err := d.DB.ExecContext(t.Context(), "SELECT 1 FROM "+d.Name+".t"); err != nil {
			t.Error(err)
		}
	}
}

func TestMySQLIsDroppedAtTheEnd(t *testing.T) {
	t.Parallel()
	admin := MySQL(t)
	var name string
	t.Run("inner", func(t *testing.T) { name = MySQL(t).Name })
	var n int
	query := "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?"
	if err := admin.DB.QueryRowContext(t.Context(), query, name).Scan(&n); err != nil || n != 0 {
		t.Fatalf("%d databases called %s, %v, want none", n, name, err)
	}
}

func TestRedisIsEmptyAndOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := Redis(t), Redis(t)
	if err := a.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("DBSIZE = %d, %v, want an empty database", n, err)
	}
	options, err := redis.ParseURL(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	other := redis.NewClient(options)
	defer other.Close()
	if v, err := other.Get(t.Context(), "k").Result(); err != nil || v != "v" {
		t.Fatalf("GET through URL = %q, %v, want v", v, err)
	}
	if a.Channel("c") == b.Channel("c") {
		t.Fatalf("two tests have the channel %s", a.Channel("c"))
	}
}

func TestOwnServersAreLocal(t *testing.T) {
	t.Parallel()
	m, r := OwnMySQL(t), OwnRedis(t, "--maxmemory", "77mb")
	for name, server := range map[string]*servers.Server{"MySQL": m.Server, "Redis": r.Server} {
		if err := server.Kill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// again runs tests of this binary in another process, without the settings of this process.
func again(t *testing.T, tests string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^("+tests+")$", "-test.count=1", "-test.v")
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "UNSTALE_TEST_") && !strings.HasPrefix(setting, "DOCKER_HOST=") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const usesBoth = "TestMySQLIsEmptyAndOfItsOwn|TestRedisIsEmptyAndOfItsOwn"

func TestGivenServersAreUsedAndLeftAsTheyWere(t *testing.T) {
	t.Parallel()
	m, r := OwnMySQL(t), OwnRedis(t)
	options, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.DB = 1
	foreign := redis.NewClient(options)
	defer foreign.Close()
	if err := foreign.Set(t.Context(), "somebody's", "data", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before, err := foreign.Info(t.Context(), "keyspace").Result()
	if err != nil {
		t.Fatal(err)
	}

	out, err := again(t, usesBoth,
		"UNSTALE_TEST_MYSQL_DSN="+m.TCPDSN(""), "UNSTALE_TEST_REDIS_URL="+r.URL(),
		"MYSQL_DSN=never@read/it", "REDIS_URL=redis://never.invalid/0")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "test servers: " + m.Flavor().String() + " " + servers.ShortVersion(m.Version()) + " (env), Redis " + servers.ShortVersion(r.Version()) + " (env)\n"
	if !strings.Contains(out, want) {
		t.Errorf("no line %q in\n%s", want, out)
	}
	if after, err := foreign.Info(t.Context(), "keyspace").Result(); err != nil || after != before {
		t.Errorf("keys before: %q, after: %q, %v", before, after, err)
	}
}

func TestOneGivenServerDoesNotDecideForTheOther(t *testing.T) {
	t.Parallel()
	r := OwnRedis(t)
	out, err := again(t, usesBoth, "UNSTALE_TEST_DB="+os.Getenv("UNSTALE_TEST_DB"), "UNSTALE_TEST_REDIS_URL="+r.URL(), "DOCKER_HOST=unix:///nonexistent/docker.sock")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "(local), Redis "+servers.ShortVersion(r.Version())+" (env)\n") {
		t.Errorf("want the database (local) and Redis (env), got\n%s", out)
	}
}

func TestWithoutServersTestsFailAndSayWhy(t *testing.T) {
	t.Parallel()
	out, err := again(t, usesBoth, "UNSTALE_TEST_SERVERS=docker", "DOCKER_HOST=unix:///nonexistent/docker.sock")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("run without servers: %v, want exit 1\n%s", err, out)
	}
	for _, want := range []string{"no database for the tests: docker: ", "no Redis for the tests: docker: ", "/nonexistent/docker.sock"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "SKIP") {
		t.Errorf("a test was skipped:\n%s", out)
	}
}

func TestMainFailsOnALeakedGoroutine(t *testing.T) {
	t.Parallel()
	out, err := again(t, "TestThatThereIsNone", leakVariable+"=1")
	if err == nil || !strings.Contains(out, "goroutines left after the tests:") {
		t.Fatalf("a leak is not a failure: %v\n%s", err, out)
	}
}

// Tests share the ZooKeeper servers, and each test has its own path.
func TestZooKeeperIsShared(t *testing.T) {
	t.Parallel()
	a, first := ZooKeeper(t)
	b, second := ZooKeeper(t)
	if a != b || len(a.Addrs()) != 3 || first == second {
		t.Errorf("%v %s, %v %s", a.Addrs(), first, b.Addrs(), second)
	}
}
