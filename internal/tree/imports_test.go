package tree

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rooms are all packages and what each may import of ours. One that is not here has no place in the plan yet: give it
// one. Only tests use internal/testenv. Only worker, internal/registry, internal/replay, internal/doctor and internal/review join internal/store and internal/keyspace.
var rooms = map[string][]string{
	"cache":                  {"internal/redisclient", "internal/sleep", "protocol"},
	"cache/cacheprom":        {"cache"},
	"cache/cachetest":        {"cache", "protocol"},
	"cache/msgpack":          {},
	"cmd/unstale":            {"internal/capture", "internal/doctor", "internal/keyspace", "internal/lookups", "internal/mapcases", "internal/near", "internal/output", "internal/params", "internal/registry", "internal/replay", "internal/review", "internal/sleep", "internal/store", "internal/verdict", "invalidation", "migrations", "outbox", "protocol", "worker"},
	"cmd/unstale-lab":        {"internal/bench", "internal/chaos", "internal/demo", "internal/keyspace", "internal/output", "internal/servers", "internal/verify", "internal/verifylocks", "invalidation"},
	"internal/bench":         {"cache", "internal/capture", "internal/fleet", "internal/keyspace", "internal/mysqlerr", "internal/review", "internal/schema", "internal/servers", "internal/sleep", "internal/store", "invalidation", "migrations", "outbox", "protocol", "worker"},
	"internal/capture":       {"internal/ddl", "internal/mysqlerr", "internal/near", "internal/schema", "internal/sqltext", "invalidation"},
	"internal/chaos":         {"internal/fleet", "internal/proxy", "internal/servers", "internal/sleep"},
	"internal/clock":         {},
	"internal/clock/overlay": {"internal/clock"},
	"internal/ddl":           {"internal/mysqlerr", "internal/sleep"},
	"internal/demo":          {"cache", "internal/capture", "internal/keyspace", "internal/servers", "internal/sleep", "internal/store", "invalidation", "lock", "migrations", "outbox", "protocol", "worker"},
	"internal/docs":          {},
	"internal/doctor":        {"internal/capture", "internal/keyspace", "internal/lookups", "internal/mysqlerr", "internal/redisclient", "internal/registry", "internal/schema", "internal/store", "internal/verdict", "invalidation", "protocol"},
	"internal/fleet":         {"internal/servers", "internal/sleep"},
	"internal/keyspace":      {"internal/match", "protocol"},
	"internal/lookups":       {"internal/sqltext", "internal/store", "invalidation"},
	"internal/mapcases":      {"internal/near", "invalidation", "protocol"},
	"internal/match":         {"protocol"},
	"internal/mysqlerr":      {},
	"internal/near":          {},
	"internal/otlp":          {},
	"internal/output":        {},
	"internal/params":        {},
	"internal/port":          {},
	"internal/proxy":         {"internal/port"},
	"internal/redisclient":   {"internal/tlserr"},
	"internal/registry":      {"internal/keyspace", "internal/store"},
	"internal/replay":        {"internal/keyspace", "internal/store", "protocol"},
	"internal/review":        {"internal/doctor", "internal/keyspace", "internal/match", "internal/store", "invalidation", "protocol"},
	"internal/schema":        {"internal/mysqlerr"},
	"internal/servers":       {"internal/port"},
	"internal/sleep":         {},
	"internal/sqltext":       {},
	"internal/store":         {"internal/mysqlerr", "internal/schema", "outbox", "protocol"},
	"internal/testenv":       {"internal/proxy", "internal/servers"},
	"internal/testenv/which": {"internal/testenv"},
	"internal/tlserr":        {},
	"internal/tree":          {},
	"internal/verdict":       {"internal/store"},
	"internal/verify":        {"cache", "internal/fleet", "internal/proxy", "internal/servers", "outbox", "protocol"},
	"internal/verifylocks":   {"internal/clock", "internal/fleet", "internal/proxy", "internal/servers", "lock", "migrations"},
	"invalidation":           {"internal/near", "internal/params", "internal/sqltext", "protocol"},
	"limit":                  {"internal/redisclient"},
	"limit/limitprom":        {"limit"},
	"lock":                   {"internal/mysqlerr", "internal/redisclient", "internal/sleep", "internal/sqltext", "internal/tlserr"},
	"lock/lockprom":          {"lock"},
	"migrations":             {"internal/ddl", "internal/mysqlerr", "internal/schema", "internal/sleep"},
	"outbox":                 {"internal/mysqlerr", "internal/params", "internal/sleep"},
	"protocol":               {},
	"worker":                 {"internal/keyspace", "internal/otlp", "internal/registry", "internal/schema", "internal/sleep", "internal/store", "invalidation", "outbox", "protocol"},
}

func TestRooms(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range list(t, "./...") {
		allowed, planned := rooms[p.name()]
		if !planned {
			t.Errorf("package %s is not among the rooms", p.name())
		}
		seen[p.name()] = true
		for _, imported := range ours(p.Imports) {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, which it must not know", p.name(), imported)
			}
		}
	}
	for name, allowed := range rooms {
		if !seen[name] {
			t.Errorf("there is no package %s any more", name)
		}
		for _, imported := range allowed {
			if _, planned := rooms[imported]; !planned {
				t.Errorf("%s may import %s, which is not among the rooms", name, imported)
			}
		}
	}
}

// strangers are modules and standard packages that a package must not link, not even through another.
var strangers = map[string][]string{
	"invalidation":      {"database/sql", "net", "os/exec", "github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "math/rand"},
	"internal/params":   {"database/sql", "encoding/json", "net", "os/exec", "go.yaml.in/yaml"},
	"internal/match":    {"database/sql", "net", "os/exec", "math/rand", "go.yaml.in", "golang.org", "github.com/redis", "github.com/go-sql-driver"},
	"internal/store":    {"github.com/redis/go-redis", "go.yaml.in/yaml", "github.com/pressly/goose", "github.com/prometheus", "github.com/spf13"},
	"internal/keyspace": {"go.yaml.in/yaml", "database/sql", "github.com/go-sql-driver/mysql", "github.com/jmoiron/sqlx"},
	"internal/schema":   {"github.com/redis/go-redis", "go.yaml.in/yaml", "github.com/pressly/goose"},
	"migrations":        {"github.com/redis/go-redis", "go.yaml.in/yaml"},
	"worker":            {"github.com/spf13", "github.com/pressly/goose"},
	// The judge shares nothing with what it judges, not even through a test helper.
	"internal/chaos": {module + "/worker", module + "/outbox", module + "/internal/store", module + "/internal/keyspace", module + "/invalidation", module + "/protocol",
		module + "/internal/testenv", "testing"},
	"internal/servers": {"github.com/redis/go-redis", "testing"},
}

// modules are all that a package may link beside the standard library and the module itself, directly or through
// another.
var modules = map[string][]string{
	// What every application links that enqueues: the driver, for its error type, and what that needs.
	"outbox":   {"github.com/go-sql-driver/mysql", "filippo.io/edwards25519"},
	"protocol": {},
	// What every application links that reads: neither the map nor MySQL.
	"cache":         {"github.com/redis/go-redis", "github.com/maypok86/otter", "github.com/sony/gobreaker", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"},
	"cache/msgpack": {"github.com/ugorji/go/codec"},
	"limit":         {"github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"},
	// What every application links that locks.
	"lock": {"github.com/redis/go-redis", "github.com/go-zookeeper/zk", "github.com/go-sql-driver/mysql", "filippo.io/edwards25519", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys"},
}

func TestModules(t *testing.T) {
	t.Parallel()
	for name, allowed := range modules {
		for _, dep := range list(t, "./"+name)[0].Deps {
			if first, _, _ := strings.Cut(dep, "/"); !strings.Contains(first, ".") || isWithin(dep, module) {
				continue // the standard library's paths have no dot in front
			}
			if !slices.ContainsFunc(allowed, func(m string) bool { return isWithin(dep, m) }) {
				t.Errorf("%s links %s", name, dep)
			}
		}
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	for name, unwanted := range strangers {
		for _, dep := range list(t, "./"+name)[0].Deps {
			if i := slices.IndexFunc(unwanted, func(u string) bool { return isWithin(dep, u) }); i >= 0 {
				t.Errorf("%s links %s", name, dep)
			}
		}
	}
}

// The released binary carries no test library and nothing that starts servers.
func TestBinary(t *testing.T) {
	t.Parallel()
	unwanted := []string{
		"testing", module + "/internal/testenv", "github.com/stretchr/testify", "github.com/testcontainers", "go.uber.org/goleak",
		"github.com/moby", "github.com/docker", "github.com/Shopify/toxiproxy", module + "/cache", module + "/internal/chaos", module + "/internal/clock", module + "/internal/verify", module + "/internal/verifylocks", module + "/internal/fleet", module + "/internal/bench", module + "/internal/demo", module + "/internal/servers", "html/template", "github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema", "net/http/httptest",
	}
	deps := list(t, "./cmd/unstale")[0].Deps
	for _, dep := range deps {
		if i := slices.IndexFunc(unwanted, func(u string) bool { return isWithin(dep, u) }); i >= 0 {
			t.Errorf("cmd/unstale links %s", dep)
		}
	}
	if !slices.Contains(deps, module+"/worker") {
		t.Error("go list does not tell what cmd/unstale links")
	}
}

// isWithin reports whether dep is the package, or lies below the path, called parent.
func isWithin(dep, parent string) bool {
	return dep == parent || strings.HasPrefix(dep, parent+"/")
}
