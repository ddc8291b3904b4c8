package demo_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/demo"
)

func TestMain(m *testing.M) {
	if demo.IsTill() {
		os.Exit(demo.RunTill())
	}
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

const shippedMap = "../../mapping.yaml"

// flavor returns the database kind of this test run.
func flavor() servers.Kind { return servers.Kind(os.Getenv("UNSTALE_TEST_DB")) }

// given are the test's servers, for demos on given servers.
type given struct {
	mysql *testenv.Database
	redis *testenv.RedisServer
}

func givenServers(t *testing.T) (given, demo.Config) {
	t.Helper()
	g := given{testenv.MySQL(t), testenv.Redis(t)}
	return g, demo.Config{MySQLDSN: g.mysql.DSN, RedisURL: g.redis.URL, MapFile: shippedMap}
}

// start starts a demo. It is closed at the end of the test, unless the test closes it.
func start(t *testing.T, cfg demo.Config) *demo.Demo {
	t.Helper()
	d, err := demo.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// changedMap copies the shipped map and replaces the first text of each pair by the second. Each
// must stand there once.
func changedMap(t *testing.T, oldnew ...string) string {
	t.Helper()
	text, err := os.ReadFile(shippedMap)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(oldnew, 2) {
		if n := bytes.Count(text, []byte(pair[0])); n != 1 {
			t.Fatalf("%q stands %d times in the shipped map", pair[0], n)
		}
	}
	path := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkFaults checks that the faults are exactly want, without the prefix of the demo's keys.
func checkFaults(t *testing.T, r *demo.Report, want ...string) {
	t.Helper()
	got := make([]string, len(r.Faults))
	for i, f := range r.Faults {
		got[i] = strings.ReplaceAll(f, r.Prefix, "")
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("faults:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.OK != (len(want) == 0) {
		t.Errorf("ok is %v with %d faults", r.OK, len(want))
	}
}

// play runs the demo and fails the test on an error.
func play(t *testing.T, d *demo.Demo) *demo.Report {
	t.Helper()
	r, err := d.Play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cancelled returns a context that has ended.
func cancelled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the test ended it"))
	return ctx
}
