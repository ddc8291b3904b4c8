package tree

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layers are all packages, from the bottom up. A package may import those of its own layer and of
// lower ones. Only tests import internal/testenv, internal/storetest and lock/internal/locktest.
var layers = [][]string{
	{"protocol", "internal/clock", "internal/clock/overlay", "internal/credentials", "internal/dberr", "internal/envtext", "internal/mysqlerr", "internal/near", "internal/output", "internal/params", "internal/sleep", "internal/sqltext"},
	{"internal/redisclient", "internal/schema", "lock/internal/locking"},
	{"cache", "invalidation", "limit", "lock", "migrations", "outbox", "redisurl"},
	{"internal/maptool", "internal/session"},
	{"internal/capture", "internal/draft", "internal/keyspace", "internal/store"},
	{"internal/maintenance"},
	{"internal/status"},
	{"worker", "worker/workerotel"},
	{"internal/history"},
	{"internal/doctor"},
	{"console"},
	{"cmd/unstale"},
	// beside the program: adapters of its packages, and what only tests and the lab use
	{"cache/cacheotel", "cache/cacheprom", "cache/cachetest", "cache/msgpack", "limit/limitprom", "lock/lockprom", "lock/zk"},
	{"internal/servers", "internal/storetest/schematest", "internal/testenv", "internal/testenv/docker", "internal/testenv/which", "internal/storetest", "lock/internal/locktest", "internal/docs", "internal/tree", "deploy/helm/check", "scripts/image"},
	{"lab/alter", "lab/bench", "lab/chaos", "lab/conform", "lab/demo", "lab/demo/shopcache", "lab/forgotten", "lab/peers/caches", "lab/peers/command", "lab/peers/locks", "lab/peers/outboxes", "lab/rig", "lab/upgrade", "lab/upgrade/reader", "lab/verify", "lab/verifylocks", "lab/vitess"},
	{"lab/cmd/peers", "lab/cmd/unstale-lab"},
}

func TestLayers(t *testing.T) {
	t.Parallel()
	layer := map[string]int{}
	for n, names := range layers {
		for _, name := range names {
			layer[name] = n
		}
	}
	seen := map[string]bool{}
	for _, p := range packages(t) {
		own, planned := layer[p.name()]
		if !planned {
			t.Errorf("package %s is in no layer", p.name())
		}
		seen[p.name()] = true
		for _, imported := range ours(p.Imports) {
			if layer[imported] > own {
				t.Errorf("%s imports %s of a higher layer", p.name(), imported)
			}
		}
	}
	for name := range layer {
		if !seen[name] {
			t.Errorf("there is no package %s any more", name)
		}
	}
}

// strangers are modules and standard packages that a package must not link, not even through
// another.
var strangers = map[string][]string{
	"invalidation":      {"database/sql", "net", "os/exec", "github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "math/rand"},
	"internal/params":   {"database/sql", "encoding/json", "net", "os/exec", "go.yaml.in/yaml"},
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
		"testing", module + "/internal/testenv", module + "/lock/internal/locktest", "github.com/stretchr/testify", "github.com/testcontainers", "go.uber.org/goleak",
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
