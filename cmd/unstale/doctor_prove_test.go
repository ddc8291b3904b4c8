package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A proof succeeds on one server, behind Sentinel and on a Cluster. It names versions but no
// address, and leaves only beacons, which expire.
func TestDoctorProve(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (url string, nodes []*redis.Client){
		"one server": func(t *testing.T) (string, []*redis.Client) {
			one := testenv.Redis(t)
			return one.URL, []*redis.Client{one.Client}
		},
		"cluster": func(t *testing.T) (string, []*redis.Client) {
			cluster := testenv.OwnCluster(t, 3, false)
			return cluster.URL(), cluster.Direct
		},
		"sentinel": func(t *testing.T) (string, []*redis.Client) {
			set := testenv.OwnSentinel(t)
			client := redis.NewClient(&redis.Options{Addr: set.Master.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			return set.URL("", 0), []*redis.Client{client}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := testenv.MySQL(t)
			url, nodes := open(t)
			vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": url}
			r := call(t, vars, "doctor", "--prove", "--json")
			var told struct {
				Unstale, MySQL, Redis string
				Findings              []doctor.Finding
			}
			if err := json.Unmarshal([]byte(r.out), &told); err != nil || told.Unstale == "" || !strings.HasPrefix(told.MySQL, env.Version) {
				t.Fatalf("%v: %+v", err, r)
			}
			var proven []string
			for _, f := range told.Findings {
				switch f.Severity {
				case doctor.Info:
					proven = append(proven, f.Check)
				case doctor.Critical, doctor.Unknown:
					t.Errorf("%+v", f)
				}
			}
			if fmt.Sprint(proven) != "[migrations locks commits scripts triggers latency]" {
				t.Errorf("it proved %s: %s", proven, r.out)
			}
			for _, node := range nodes {
				if address := node.Options().Addr; strings.Contains(r.out, address) || !strings.Contains(r.out, "SERVER") {
					t.Errorf("%s is named, or nothing is hidden, in %s", address, r.out)
				}
				for _, key := range node.Keys(t.Context(), "*").Val() {
					// unstale:alive{...} is of the check redis-rights
					ttl, own := node.PTTL(t.Context(), key).Val(), strings.HasPrefix(key, "unstale:beacon:") || strings.HasPrefix(key, "unstale:alive{")
					if !own || ttl == -1 || ttl > 2*time.Minute {
						t.Errorf("%s is left for %s", key, ttl)
					}
				}
			}
			if left := tablesOf(t, env); len(left) > 0 {
				t.Errorf("%s are left", left)
			}
		})
	}
}

func tablesOf(t *testing.T, env *testenv.Database) (names []string) {
	t.Helper()
	rows, err := env.DB.QueryContext(t.Context(), "SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// A database with a table is left alone.
func TestDoctorProveNeedsAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	env, server := testenv.MySQL(t), testenv.Redis(t)
	if _, err := env.DB.Exec("CREATE TABLE products (id INT)"); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": server.URL}
	if r := call(t, vars, "doctor", "--prove"); r.code != exitFail || r.out != "" || !strings.Contains(r.err, "has tables; create an empty one") {
		t.Errorf("%+v", r)
	}
	if left := tablesOf(t, env); !slices.Equal(left, []string{"products"}) {
		t.Errorf("tables %s", left)
	}
	if keys := server.Client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys %s", keys)
	}
	if r := call(t, vars, "doctor", "--prove", "--keys"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
}

// The report names each property that fails, here for an account without TRIGGER and one that runs
// no script. All other steps are tried, and everything is removed.
func TestDoctorProveNamesWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	env, server := testenv.MySQL(t), testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(t.Context(), "acl", "setuser", "prover", "on", ">a-secret-7", "+@all", "-@scripting", "~*", "&*").Err(); err != nil {
		t.Fatal(err)
	}
	config, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = env.DB.Exec("DROP USER '" + env.Name + "'@'%'") })
	for _, statement := range []string{
		"CREATE USER '" + env.Name + "'@'%' IDENTIFIED BY 'a secret 8'",
		"GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON " + env.Name + ".* TO '" + env.Name + "'@'%'",
	} {
		if _, err := env.DB.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	config.User, config.Passwd = env.Name, "a secret 8"
	vars := map[string]string{"MYSQL_DSN": config.FormatDSN(), "REDIS_URL": "redis://prover:a-secret-7@" + server.Addr()}
	r := call(t, vars, "doctor", "--prove")
	for _, line := range []string{"critical  scripts ", "warning   triggers ", "info      commits "} {
		if r.code != exitFail || !strings.Contains(r.out, "\n"+line) {
			t.Errorf("no line %q in %+v", line, r)
		}
	}
	for _, secret := range []string{"secret", server.Addr(), "'" + env.Name + "'@"} {
		if strings.Contains(r.out+r.err, secret) {
			t.Errorf("%s is in %+v", secret, r)
		}
	}
	if left := tablesOf(t, env); len(left) > 0 {
		t.Errorf("%s are left", left)
	}
}

// If Redis cannot be used at all, the command reports that alone, as it does for MySQL.
func TestDoctorProveNeedsRedis(t *testing.T) {
	t.Parallel()
	env, server, cluster := testenv.MySQL(t), testenv.OwnRedis(t), testenv.OwnCluster(t, 3, false)
	for url, want := range map[string]string{
		"redis://nobody:wrong@" + server.Addr(): "check the user and the password of the redis url",
		"redis://127.0.0.1:1":                   "connection refused",
		cluster.Nodes[0].URL():                  "use redis+cluster://",
	} {
		vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": url}
		if r := call(t, vars, "doctor", "--prove"); r.code != exitFail || r.out != "" || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") > 1 {
			t.Errorf("%s: %+v, wanted %q", url, r, want)
		}
	}
	if left := tablesOf(t, env); len(left) > 0 {
		t.Errorf("%s are left", left)
	}
}

// Two runs in one database run one after the other.
func TestDoctorProveTwice(t *testing.T) {
	t.Parallel()
	env, server := testenv.MySQL(t), testenv.Redis(t)
	vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": server.URL}
	results := make(chan result, 2)
	for range cap(results) {
		go func() { results <- call(t, vars, "doctor", "--prove") }()
	}
	for range cap(results) {
		if r := <-results; !strings.Contains(r.out, "\n0 critical, ") || !strings.Contains(r.out, "info      migrations ") {
			t.Errorf("%+v", r)
		}
	}
}

// An account that may only use the names under "What it touches" of the page lacks nothing.
func TestDoctorProveTouchesWhatThePageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### What it touches\n")
	section, _, ended := strings.Cut(section, "\n##")
	if !found || !ended {
		t.Fatal("docs/doctor.md does not have the section")
	}
	rules := []string{"on", ">hush", "+@all", "&*", "~" + protocol.LeasePrefix + "*", "~" + protocol.HoldPrefix + "*"}
	for _, name := range regexp.MustCompile("`(unstale[-:][^`]*)`").FindAllStringSubmatch(section, -1) {
		pattern := strings.Replace(name[1], "{NAME}", "{*}", 1)
		if strings.HasSuffix(pattern, ":") {
			pattern += "*"
		}
		rules = append(rules, "~"+pattern)
	}
	env, server := testenv.MySQL(t), testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	testenv.SetUser(t, admin, "prover", rules...)
	vars := map[string]string{"MYSQL_DSN": env.DSN, "REDIS_URL": "redis://prover:hush@" + server.Addr()}
	if r := call(t, vars, "doctor", "--prove"); !strings.Contains(r.out, "\n0 critical, ") || !strings.Contains(r.out, "\nok        redis-rights ") {
		t.Errorf("%s: %+v", rules, r)
	}
}
