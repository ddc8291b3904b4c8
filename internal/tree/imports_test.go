package tree

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rooms are all packages and what each may import of ours. One that is not here has no place in the plan yet: give it
// one. Only tests use internal/testenv. Only worker joins outbox and keyspace; only the program and its demo import worker.
var rooms = map[string][]string{
	"cmd/unstale":            {"invalidation", "keyspace", "migrations", "outbox", "protocol", "worker"},
	"cmd/unstale-lab":        {"internal/bench", "internal/chaos", "internal/demo", "internal/servers", "keyspace", "worker"},
	"internal/bench":         {"internal/servers", "invalidation", "keyspace", "migrations", "outbox", "protocol", "worker"},
	"internal/chaos":         {"internal/proxy", "internal/servers"},
	"internal/demo":          {"internal/servers", "invalidation", "keyspace", "migrations", "outbox", "protocol", "worker"},
	"internal/docs":          {},
	"internal/proxy":         {},
	"internal/servers":       {},
	"internal/testenv":       {"internal/proxy", "internal/servers"},
	"internal/testenv/which": {"internal/testenv"},
	"internal/tree":          {},
	"invalidation":           {"invalidation/params", "protocol"},
	"invalidation/params":    {},
	"keyspace":               {"protocol"},
	"migrations":             {},
	"outbox":                 {"invalidation/params"},
	"protocol":               {},
	"worker":                 {"invalidation", "keyspace", "outbox", "protocol"},
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
	"invalidation":        {"database/sql", "net", "os/exec", "github.com/redis/go-redis", "github.com/go-sql-driver/mysql", "math/rand"},
	"invalidation/params": {"database/sql", "encoding/json", "net", "os/exec", "go.yaml.in/yaml"},
	"keyspace":            {"go.yaml.in/yaml", "database/sql", "github.com/go-sql-driver/mysql", "github.com/jmoiron/sqlx"},
	// The standard library alone, and of that nothing that reaches out.
	"protocol":   {"database/sql", "net", "os/exec", "math/rand", "go.yaml.in", "golang.org", "github.com"},
	"migrations": {"github.com/redis/go-redis", "go.yaml.in/yaml"},
	// What every application links that enqueues.
	"outbox": {"github.com/redis/go-redis", "go.yaml.in/yaml", "github.com/pressly/goose", "github.com/prometheus", "github.com/spf13"},
	"worker": {"github.com/spf13", "github.com/pressly/goose"},
	// The judge shares nothing with what it judges, not even through a test helper.
	"internal/chaos":   {module + "/worker", module + "/outbox", module + "/keyspace", module + "/invalidation", module + "/protocol", module + "/internal/testenv", "testing"},
	"internal/servers": {"github.com/redis/go-redis", "testing"},
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
		"github.com/moby", "github.com/docker", "github.com/Shopify/toxiproxy", module + "/internal/chaos", module + "/internal/bench", module + "/internal/demo", module + "/internal/servers", "html/template", "github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema", "net/http/httptest",
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

// isWithin says whether dep is the package, or lies below the path, called parent.
func isWithin(dep, parent string) bool {
	return dep == parent || strings.HasPrefix(dep, parent+"/")
}
