package lock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	locktest.Main(m, func(addr string) lock.Config {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		return lock.Config{Backend: lock.Redis{Client: client}, TTL: short}
	})
}

const (
	long    = locktest.Long
	short   = locktest.Short
	patient = locktest.Patient
)

var (
	must      = locktest.Must
	wantError = locktest.WantError
	add       = locktest.Add
)

// A world is a Redis and, if asked for, a database with the tables, of one test's own.
type world struct {
	*locktest.World
	addr  string
	redis *redis.Client
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldAt(t, testenv.OwnRedis(t).Addr())
}

// worldAt returns the world of a Redis. change may modify the options of its client.
func worldAt(t testing.TB, addr string, change ...func(*redis.Options)) *world {
	w := worldOf(t, testenv.Client(t, "redis://"+addr, change...))
	w.addr, w.Place = addr, addr
	return w
}

// worldOf returns the world of a client.
func worldOf(t testing.TB, client *redis.Client) *world {
	return &world{World: &locktest.World{TB: t, Backend: lock.Redis{Client: client}}, redis: client}
}

// withMySQL returns a world of Redis, with a database.
func withMySQL(t testing.TB, names ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.AddMySQL(names...)
	return w
}

// calls returns how many scripts Redis has run.
func (w *world) calls(command string) (n int64) {
	w.Helper()
	text, err := w.redis.InfoMap(w.Context(), "commandstats").Result()
	must(w, err)
	_, _ = fmt.Sscanf(text["Commandstats"]["cmdstat_"+command], "calls=%d,", &n)
	return n
}

// waits reports whether a session waits for a row of a table. It does not use the list of
// transactions in information_schema, which the server refreshes only after a tenth of a second
// without a query.
func (w *world) waits(table string) bool {
	w.Helper()
	var kind, name, status string
	must(w, w.Env.DB.QueryRowContext(w.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
	for line := range strings.Lines(status) {
		if strings.Contains(line, "of table `"+w.Env.Name+"`.`"+table+"`") && strings.HasSuffix(strings.TrimSpace(line), " waiting") {
			return true
		}
	}
	return false
}
