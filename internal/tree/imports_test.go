package tree

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rooms are all packages and the packages of this module that each may import. A package that is
// missing here has no place in the plan yet: add it. Only tests use internal/testenv and
// internal/locktest. The packages that join the parts of internal/store and internal/keyspace are
// worker with its services (internal/heal, internal/outage and internal/sweep), internal/registry,
// internal/replay, internal/doctor, internal/prove and internal/review.
var rooms = map[string][]string{
	"cache":                      {"internal/dberr", "internal/envtext", "internal/redisclient", "internal/sleep", "protocol"},
	"cache/cacheotel":            {"cache"},
	"cache/cacheprom":            {"cache"},
	"cache/cachetest":            {"cache", "invalidation", "outbox", "protocol"},
	"cache/msgpack":              {},
	"cmd/unstale":                {"console", "internal/acl", "internal/capture", "internal/doctor", "internal/expand", "internal/history", "internal/journal", "internal/keyspace", "internal/look", "internal/lookups", "internal/mapcases", "internal/mapnames", "internal/minutes", "internal/near", "internal/operate", "internal/output", "internal/params", "internal/prove", "internal/registry", "internal/replay", "internal/review", "internal/secretfile", "internal/session", "internal/sleep", "internal/sweeps", "internal/tlsfiles", "internal/verdict", "invalidation", "migrations", "outbox", "protocol", "redisurl", "worker", "worker/workerotel"},
	"console":                    {"internal/expand", "internal/history", "internal/journal", "internal/keyspace", "internal/look", "internal/minutes", "internal/mysqlerr", "internal/near", "internal/operate", "internal/output", "internal/replay", "internal/secretfile", "internal/session", "internal/shadow", "internal/sleep", "internal/staleentries", "internal/sweeps", "internal/verdict", "invalidation", "protocol"},
	"deploy/helm/check":          {},
	"internal/acl":               {"internal/keyspace", "invalidation", "protocol"},
	"internal/batchsize":         {},
	"internal/capture":           {"internal/ddl", "internal/mysqlerr", "internal/near", "internal/schema", "internal/sqltext", "invalidation", "protocol"},
	"internal/clock":             {},
	"internal/clock/overlay":     {"internal/clock"},
	"internal/dberr":             {},
	"internal/ddl":               {"internal/mysqlerr", "internal/sleep"},
	"internal/docs":              {},
	"internal/doctor":            {"internal/acl", "internal/capture", "internal/journal", "internal/keyspace", "internal/look", "internal/lookups", "internal/mysqlerr", "internal/operate", "internal/redisclient", "internal/registry", "internal/schema", "internal/session", "internal/verdict", "invalidation", "protocol"},
	"internal/envtext":           {},
	"internal/expand":            {"internal/session", "invalidation", "outbox", "worker"},
	"internal/heal":              {"internal/batchsize", "internal/journal", "internal/keyspace", "internal/outage", "internal/sleep"},
	"internal/heartbeat":         {"internal/keyspace", "internal/outage"},
	"internal/history":           {"internal/journal", "internal/keyspace", "internal/operate", "internal/output", "internal/session", "internal/shadow", "internal/staleentries", "internal/sweeps", "internal/verdict", "invalidation", "protocol"},
	"internal/journal":           {"internal/mysqlerr", "internal/session", "internal/sleep", "protocol"},
	"internal/keyspace":          {"internal/match", "internal/redisclient", "internal/tlserr", "protocol", "redisurl"},
	"internal/locking":           {},
	"internal/lockrows":          {"internal/session"},
	"internal/locktest":          {"internal/schema/schematest", "internal/servers", "internal/testenv", "lock"},
	"internal/look":              {"internal/keyspace", "internal/operate", "internal/registry", "internal/session", "internal/sleep", "internal/spotcheck", "internal/verdict", "protocol"},
	"internal/lookups":           {"internal/session", "internal/sqltext", "invalidation"},
	"internal/mapcases":          {"internal/mapnames", "internal/near", "invalidation", "protocol"},
	"internal/mapnames":          {"invalidation"},
	"internal/match":             {"protocol"},
	"internal/minutes":           {"internal/mysqlerr", "internal/session"},
	"internal/mysqlerr":          {},
	"internal/near":              {},
	"internal/operate":           {"internal/journal", "internal/minutes", "internal/mysqlerr", "internal/session", "internal/staleentries", "internal/sweeps", "outbox"},
	"internal/outage":            {"internal/keyspace", "internal/session", "internal/sleep"},
	"internal/output":            {},
	"internal/params":            {},
	"internal/port":              {},
	"internal/prove":             {"internal/capture", "internal/ddl", "internal/doctor", "internal/keyspace", "internal/redisclient", "invalidation", "migrations", "outbox", "protocol", "worker"},
	"internal/proxy":             {"internal/port"},
	"internal/queue":             {"internal/journal", "internal/minutes", "internal/mysqlerr", "internal/session", "internal/sweeps", "outbox"},
	"internal/redisclient":       {"internal/tlserr", "protocol"},
	"internal/registry":          {"internal/journal", "internal/keyspace", "internal/operate", "protocol"},
	"internal/replay":            {"internal/journal", "internal/keyspace", "internal/operate", "internal/session", "internal/sweeps", "protocol"},
	"internal/review":            {"internal/doctor", "internal/journal", "internal/keyspace", "internal/match", "internal/session", "invalidation", "protocol"},
	"internal/schema":            {"internal/mysqlerr"},
	"internal/schema/schematest": {"migrations"},
	"internal/servers":           {"internal/port"},
	"internal/secretfile":        {},
	"internal/session":           {"internal/mysqlerr", "internal/schema", "internal/secretfile", "internal/tlserr", "internal/tlsfiles", "outbox"},
	"internal/shadow":            {"internal/journal", "internal/keyspace", "internal/minutes", "internal/session", "internal/sleep", "invalidation", "protocol"},
	"internal/sleep":             {},
	"internal/spotcheck":         {"internal/keyspace", "internal/minutes", "protocol"},
	"internal/sqltext":           {},
	"internal/staleentries":      {"internal/session"},
	"internal/store":             {"internal/journal", "internal/lockrows", "internal/minutes", "internal/operate", "internal/queue", "internal/session", "internal/staleentries", "internal/sweeps"},
	"internal/store/storetest":   {"internal/journal", "internal/queue", "internal/schema/schematest", "internal/session", "internal/store", "internal/testenv", "outbox"},
	"internal/sweep":             {"internal/journal", "internal/keyspace", "internal/outage", "internal/sleep", "internal/sweeps"},
	"internal/sweeps":            {"internal/journal", "internal/session"},
	"internal/testenv":           {"internal/clock", "internal/mysqlerr", "internal/proxy", "internal/servers"},
	"internal/testenv/docker":    {},
	"internal/testenv/which":     {"internal/testenv"},
	"internal/tlserr":            {},
	"internal/tlsfiles":          {},
	"internal/tree":              {},
	"internal/verdict":           {"internal/minutes", "internal/operate", "internal/output", "internal/session"},
	"invalidation":               {"internal/envtext", "internal/near", "internal/params", "internal/sqltext", "protocol"},
	"lab/bench":                  {"cache", "internal/capture", "internal/journal", "internal/keyspace", "internal/mysqlerr", "internal/review", "internal/schema", "internal/servers", "internal/session", "internal/sleep", "internal/store", "invalidation", "lab/rig", "migrations", "outbox", "protocol", "redisurl", "worker"},
	"lab/chaos":                  {"internal/clock", "internal/proxy", "internal/servers", "internal/sleep", "lab/rig"},
	"lab/cmd/peers":              {"lab/peers/caches", "lab/peers/locks", "lab/peers/outboxes"},
	"lab/cmd/unstale-lab":        {"internal/keyspace", "internal/output", "internal/servers", "invalidation", "lab/bench", "lab/chaos", "lab/demo", "lab/forgotten", "lab/upgrade", "lab/verify", "lab/verifylocks"},
	"lab/demo":                   {"cache", "console", "internal/capture", "internal/keyspace", "internal/minutes", "internal/servers", "internal/session", "internal/sleep", "internal/store", "invalidation", "lab/demo/shopcache", "lock", "migrations", "outbox", "protocol", "redisurl", "worker"},
	"lab/demo/shopcache":         {"cache", "outbox"},
	"lab/forgotten":              {"cache", "internal/servers", "internal/sleep", "lab/rig", "outbox"},
	"lab/peers/caches":           {"cache", "internal/keyspace", "internal/proxy", "internal/servers", "internal/sleep", "invalidation", "lab/bench", "lab/peers/command", "migrations", "outbox", "protocol", "redisurl", "worker"},
	"lab/peers/command":          {},
	"lab/peers/locks":            {"internal/keyspace", "internal/servers", "internal/sleep", "lab/bench", "lab/peers/command", "lock", "lock/zk", "migrations"},
	"lab/peers/outboxes":         {"internal/keyspace", "lab/bench", "lab/peers/command"},
	"lab/rig":                    {"internal/clock", "internal/port", "internal/servers", "internal/sleep"},
	"lab/upgrade":                {"internal/servers", "internal/sleep", "lab/rig"},
	"lab/upgrade/reader":         {"cache"},
	"lab/verify":                 {"cache", "internal/clock", "internal/proxy", "internal/servers", "lab/rig", "outbox", "protocol"},
	"lab/verifylocks":            {"internal/clock", "internal/proxy", "internal/servers", "lab/rig", "lock", "lock/zk", "migrations"},
	"limit":                      {"internal/redisclient"},
	"limit/limitprom":            {"limit"},
	"lock":                       {"internal/dberr", "internal/locking", "internal/mysqlerr", "internal/redisclient", "internal/sleep", "internal/sqltext", "internal/tlserr"},
	"lock/lockprom":              {"lock"},
	"lock/zk":                    {"internal/locking", "internal/tlserr", "lock"},
	"migrations":                 {"internal/ddl", "internal/mysqlerr", "internal/schema", "internal/sleep"},
	"outbox":                     {"internal/dberr", "internal/mysqlerr", "internal/params", "internal/sleep", "protocol"},
	"protocol":                   {},
	"redisurl":                   {"internal/redisclient", "internal/secretfile", "internal/tlsfiles"},
	"worker":                     {"internal/batchsize", "internal/heal", "internal/heartbeat", "internal/journal", "internal/keyspace", "internal/lockrows", "internal/minutes", "internal/operate", "internal/outage", "internal/queue", "internal/registry", "internal/schema", "internal/session", "internal/shadow", "internal/sleep", "internal/spotcheck", "internal/staleentries", "internal/store", "internal/sweep", "internal/sweeps", "invalidation", "outbox", "protocol"},
	"scripts/image":              {},
	"worker/workerotel":          {"worker"},
}

func TestRooms(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range packages(t) {
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

// strangers are modules and standard packages that a package must not link, not even through
// another.
var strangers = map[string][]string{
	"invalidation":      {"database/sql", "net", "os/exec", "github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "math/rand"},
	"internal/params":   {"database/sql", "encoding/json", "net", "os/exec", "go.yaml.in/yaml"},
	"internal/match":    {"database/sql", "net", "os/exec", "math/rand", "go.yaml.in", "golang.org", "github.com/redis", "github.com/go-sql-driver"},
	"internal/store":    {"github.com/redis/go-redis", "go.yaml.in/yaml", "github.com/pressly/goose", "github.com/prometheus", "github.com/spf13"},
	"internal/keyspace": {"go.yaml.in/yaml", "database/sql", "github.com/go-sql-driver/mysql", "github.com/jmoiron/sqlx"},
	"internal/schema":   {"github.com/redis/go-redis", "go.yaml.in/yaml", "github.com/pressly/goose"},
	"migrations":        {"github.com/redis/go-redis", "go.yaml.in/yaml"},
	"worker":            {"github.com/spf13", "github.com/pressly/goose", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"},
	"cache/cacheotel":   {"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"},
	"worker/workerotel": {"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"},
	// The checker shares no code with the packages that it checks, not even through a test helper.
	"lab/chaos": {module + "/worker", module + "/outbox", module + "/internal/store", module + "/internal/session", module + "/internal/keyspace", module + "/invalidation", module + "/protocol",
		module + "/internal/testenv", "testing"},
	"internal/servers": {"github.com/redis/go-redis", "testing"},
}

// modules are all that a package may link in addition to the standard library and the module
// itself, directly or through another.
var modules = map[string][]string{
	// Dependencies of every application that enqueues: the driver, for its error type, and its
	// dependencies.
	"outbox":   {"github.com/go-sql-driver/mysql", "filippo.io/edwards25519"},
	"protocol": {},
	// Dependencies of every application that reads: neither the map nor MySQL.
	"cache":         {"github.com/redis/go-redis", "github.com/maypok86/otter", "github.com/sony/gobreaker", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"},
	"cache/msgpack": {"github.com/ugorji/go/codec"},
	"redisurl":      {"github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"},
	"limit":         {"github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys/cpu"},
	// Dependencies of every application that uses locks.
	"lock": {"github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "filippo.io/edwards25519", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys"},
}

func TestModules(t *testing.T) {
	t.Parallel()
	for name, allowed := range modules {
		for _, dep := range find(t, name).Deps {
			if first, _, _ := strings.Cut(dep, "/"); !strings.Contains(first, ".") || isWithin(dep, module) {
				continue // paths of the standard library have no dot in the first element
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
		for _, dep := range find(t, name).Deps {
			if i := slices.IndexFunc(unwanted, func(u string) bool { return isWithin(dep, u) }); i >= 0 {
				t.Errorf("%s links %s", name, dep)
			}
		}
	}
}

// The released binary contains no test library and nothing that starts servers.
func TestBinary(t *testing.T) {
	t.Parallel()
	unwanted := []string{
		"testing", module + "/internal/testenv", module + "/internal/locktest", "github.com/stretchr/testify", "github.com/testcontainers", "go.uber.org/goleak",
		"github.com/moby", "github.com/docker", "github.com/Shopify/toxiproxy", module + "/cache", module + "/lab", module + "/internal/clock", module + "/internal/servers", "github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema", "net/http/httptest",
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

// isWithin reports whether dep is the package parent, or a package below it.
func isWithin(dep, parent string) bool {
	return dep == parent || strings.HasPrefix(dep, parent+"/")
}
