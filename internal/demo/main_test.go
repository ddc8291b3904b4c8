package demo_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/demo"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) {
	if demo.IsTill() {
		os.Exit(demo.RunTill())
	}
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

const shippedMap = "../../mapping.yaml"

// flavor is the database that this run of the tests is about.
func flavor() servers.Kind { return servers.Kind(os.Getenv("UNSTALE_TEST_DB")) }

// given are the test's servers, for the demo to play on.
type given struct {
	mysql *testenv.Database
	redis *testenv.RedisServer
}

func givenServers(t *testing.T) (given, demo.Config) {
	t.Helper()
	g := given{testenv.MySQL(t), testenv.Redis(t)}
	return g, demo.Config{MySQLDSN: g.mysql.DSN, RedisURL: g.redis.URL, MapFile: shippedMap}
}

// start starts a demo that is closed at the end of the test, if the test does not do it.
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

// changedMap is the shipped map with one piece of text replaced.
func changedMap(t *testing.T, old, new string) string {
	t.Helper()
	text, err := os.ReadFile(shippedMap)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(old)); n != 1 {
		t.Fatalf("%q stands %d times in the shipped map", old, n)
	}
	path := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(path, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkFaults wants exactly the faults that begin with the prefix of the demo's keys cut out.
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

// play plays and wants no error.
func play(t *testing.T, d *demo.Demo) *demo.Report {
	t.Helper()
	r, err := d.Play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cancelled is a context that has ended.
func cancelled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the test ended it"))
	return ctx
}
