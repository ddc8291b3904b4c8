package doctor_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

// everything uses all features of a map.
const everything = `version: 1
publish: {channel: "cache:invalidate"}
params:
  category_id: {lookup: {by: [id], sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}}
entities:
  product:
    params: [category_id]
    keys: ["zahraah:product:{id}", "zahraah:home"]
    patterns: ["zahraah:category:{category_id}:*"]
    sets: ["tag:{id}"]
    tags: ["product-{id}"]
    hold: 1s
`

// A testbed has private servers, with the accounts of a worker and of an audit, which have all
// required privileges.
type testbed struct {
	t      testing.TB
	db     *testenv.Database // by an administrator
	redis  *servers.Redis
	state  *servers.Redis // of sessions, limits and locks; nil: none
	admin  *redis.Client
	inputs doctor.Inputs

	tx       *sql.Tx           // of a fault
	held     []*sql.Conn       // of a fault
	altered  chan error        // of a fault: an ALTER TABLE has ended
	replica  *servers.Redis    // of a fault
	follower *testenv.Database // of a fault, a replica of MySQL
}

const patience = time.Minute

const worker, audit = "unstale", "unstale_audit"

// noPublish are ACL rules of the administrator of Redis, who is not a worker.
const noPublish = "-publish -spublish"

func newWard(t testing.TB, redisArgs ...string) *testbed {
	t.Helper()
	w := &testbed{t: t, db: testenv.OwnDatabase(t, "--log-bin=changes"), redis: testenv.OwnRedis(t, append([]string{"--enable-debug-command", "local", "--repl-diskless-sync-delay", "0", "--slowlog-log-slower-than", "10000000", "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru"}, redisArgs...)...)}
	schematest.Up(t, w.db.DB)
	w.sql("CREATE TABLE product_categories (product_id INT, category_id INT)", "INSERT INTO product_categories VALUES (1, 7), (1, 9), (2, 8)", "CREATE TABLE products (id INT PRIMARY KEY, name TEXT)")
	for _, user := range []string{worker, audit} {
		w.sql("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'secret'")
	}
	for _, rights := range doctor.WorkerRights {
		w.sql("GRANT " + strings.Join(rights.Rights, ", ") + " ON shop." + rights.Table + " TO 'unstale'@'%'")
	}
	w.sql("GRANT SELECT ON shop.product_categories TO 'unstale'@'%'", "GRANT SELECT, TRIGGER ON shop.* TO 'unstale_audit'@'%'", "GRANT SELECT ON mysql.tables_priv TO 'unstale_audit'@'%'",
		"GRANT SELECT (User, Host) ON mysql.user TO 'unstale_audit'@'%'")
	if w.db.Flavor == servers.KindMariaDB {
		w.sql("GRANT PROCESS, BINLOG MONITOR, REPLICA MONITOR ON *.* TO 'unstale_audit'@'%'")
	} else {
		w.sql("GRANT PROCESS, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO 'unstale_audit'@'%'", "GRANT SELECT ON performance_schema.data_locks TO 'unstale_audit'@'%'",
			"GRANT SELECT ON performance_schema.metadata_locks TO 'unstale_audit'@'%'", "GRANT SELECT ON performance_schema.threads TO 'unstale_audit'@'%'",
			"GRANT SELECT ON performance_schema.variables_by_thread TO 'unstale_audit'@'%'")
	}
	w.admin = redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = w.admin.Close() })
	w.acl(worker, "reset "+workerRules(t))
	w.acl("default", noPublish)
	w.acl(audit, "reset on >secret -@all +ping +select +info +config|get +slowlog|get +acl|dryrun +acl|getuser +acl|users +command +get %R~unstale:beacon:*")
	w.inputs = doctor.Inputs{StateDB: -1, Wake: "cache:outbox:wake", RedisUser: worker, LongTransaction: 0}
	w.inputs.MySQL, w.inputs.Redis = w.mysql(worker, "shop"), w.keys(worker, 0)
	w.useMap(everything)
	return w
}

// sql runs statements as an administrator.
func (w *testbed) sql(statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		if _, err := w.db.DB.ExecContext(w.t.Context(), s); err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
	}
}

// acl changes an account of Redis.
func (w *testbed) acl(user, rules string) {
	w.t.Helper()
	w.do("acl setuser " + user + " " + rules)
}

// do runs a command of Redis as an administrator.
func (w *testbed) do(command string) {
	w.t.Helper()
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, strings.Trim(word, `"`))
	}
	if err := w.admin.Do(w.t.Context(), args...).Err(); err != nil {
		w.t.Fatalf("%s: %v", command, err)
	}
}

func (w *testbed) mysql(user, database string) *session.Sessions {
	w.t.Helper()
	return w.store(session.Config{MySQL: w.dsn(user, database), Worker: "doctor"})
}

func (w *testbed) dsn(user, database string) *mysql.Config {
	w.t.Helper()
	c, err := mysql.ParseDSN(w.db.DSN)
	if err != nil {
		w.t.Fatal(err)
	}
	c.User, c.Passwd, c.DBName = user, "secret", database
	return c
}

func (w *testbed) store(c session.Config) *session.Sessions {
	w.t.Helper()
	s, err := session.Open(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *testbed) keys(user string, db int) *keyspace.Keyspace {
	w.t.Helper()
	return w.keysAt(w.redis.Addr(), user, db)
}

func (w *testbed) keysAt(addr, user string, db int) *keyspace.Keyspace {
	w.t.Helper()
	options, err := redisurl.Parse(fmt.Sprintf("redis://%s:secret@%s/%d", user, addr, db), false)
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := keyspace.Open(keyspace.Options{Redis: options, Timeout: 5 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = k.Close() })
	return k
}

// shippedEnv is the environment that the shipped map requires.
func shippedEnv(name string) (string, bool) {
	if name == "APP_ENV" {
		return "prod", true
	}
	return "", false
}

func (w *testbed) useMap(src string) {
	w.t.Helper()
	w.inputs.Map, w.inputs.MapError = invalidation.Parse("map.yaml", []byte(src), shippedEnv)
}

// withAudit gives the inputs the accounts of the audit.
func (w *testbed) withAudit() *testbed {
	w.inputs.AuditMySQL, w.inputs.AuditRedis = w.mysql(audit, "shop"), w.keys(audit, 0).Nodes
	return w
}

// withState gives the inputs the Redis of sessions, limits and locks, by the account of
// docs/doctor.md.
func (w *testbed) withState() {
	w.t.Helper()
	w.state = testenv.OwnRedis(w.t, "--appendonly", "yes", "--user", "unstale_state", "on", ">secret", "-@all", "+ping", "+select", "+info", "+scan", "+pubsub|numsub")
	w.inputs.State = w.keysAt(w.state.Addr(), "unstale_state", 0).Nodes
}

// onState runs a command there as an administrator.
func onState(command string) func(*testbed) {
	return func(w *testbed) {
		w.t.Helper()
		admin := redis.NewClient(&redis.Options{Addr: w.state.Addr()})
		defer admin.Close()
		var args []any
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		if err := admin.Do(w.t.Context(), args...).Err(); err != nil {
			w.t.Fatalf("%s: %v", command, err)
		}
	}
}

// examine returns the findings of some checks, or of all.
func (w *testbed) examine(checks ...string) []doctor.Finding {
	w.t.Helper()
	inputs := w.inputs
	return doctor.Examine(w.t.Context(), &inputs, checks...)
}

// find returns the finding of a check that contains text, unless all is well.
func find(all []doctor.Finding, check, text string) *doctor.Finding {
	for i, f := range all {
		if f.Check == check && f.Severity != doctor.OK && strings.Contains(f.Title+"\n"+f.Evidence+"\n"+f.Cure, text) {
			return &all[i]
		}
	}
	return nil
}
