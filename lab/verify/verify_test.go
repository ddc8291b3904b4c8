package verify_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/conform"
	"github.com/unstale/unstale/lab/verify"
)

// These arguments make this program a reader process, or a client of one.
const (
	reader   = "reader"
	asClient = "client"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == reader {
		if err := verify.Read(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := conform.ServeClient(context.Background(), os.Stdin, os.Stdout, conform.ClientOptions{Plant: os.Getenv("UNSTALE_PLANT")}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// config returns the configuration of a short run, with the program built as for a release.
func config(t *testing.T) verify.Config {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "unstale")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/unstale").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return verify.Config{
		Binary: binary, Reader: []string{os.Args[0], reader}, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")),
		Turn: time.Second, Reads: 1000, Writes: 100, Keys: 48,
	}
}

// The short form of the checker: every phase once, in parallel groups.
func TestNoReadIsBeyondItsBound(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.For = time.Second
	left := verify.PhaseNames(false)
	var all coverage
	t.Cleanup(func() { all.check(t) })
	for _, phases := range [][]string{
		{"light load", "calm", "worker killed", "redis empty", "old snapshot", "sweeps"},
		{"worker frozen", "subscriber cut", "subscriber frozen", "failover", "master demoted", "demoted in place"},
		{"reader frozen", "patterns flood", "other database", "no worker"},
		{"holds", "map reloaded", "clock set"},
	} {
		t.Run(strings.Join(phases, ", "), func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.Phases, cfg.Progress = phases, t.Output()
			cfg.RawValues = phases[0] == "worker frozen"
			all.measure(t, cfg)
		})
		left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(phases, name) })
	}
	if len(left) > 0 {
		t.Errorf("in no group: %q", left)
	}
}

// The same on a Redis Cluster.
func TestNoReadIsBeyondItsBoundInACluster(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Cluster, cfg.For, cfg.Progress = true, time.Second, t.Output()
	cfg.Phases = slices.DeleteFunc(verify.PhaseNames(true), func(name string) bool { return name == "calm" || name == "worker killed" })
	new(coverage).measure(t, cfg)
}

// A coverage is the union of several runs of the checker: a phase of one second on a busy machine
// may lack some.
type coverage struct {
	mu                         sync.Mutex
	raced                      int
	memory, unsettled, birthed int64
}

// measure runs the checker, which must find no violation but must have made reads.
func (c *coverage) measure(t *testing.T, cfg verify.Config) {
	t.Helper()
	report, err := verify.Run(t.Context(), cfg)
	if report != nil {
		t.Logf("\n%s", report)
	}
	if err != nil {
		t.Fatal(err)
	}
	if report.Violations() > 0 {
		t.Errorf("repeat it with: make verify SEED=%d VERIFY='--for 5m'", report.Seed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range report.Phases {
		if p.Invalidations == 0 || p.Reads == 0 {
			t.Errorf("%s: %d invalidations, %d reads: nothing was tested", p.Phase, p.Invalidations, p.Reads)
		}
		c.memory, c.unsettled, c.birthed = c.memory+p.FromMemory, c.unsettled+p.Unsettled, c.birthed+p.Births
	}
	c.raced += report.Raced()
}

// check must be called when all runs have ended.
func (c *coverage) check(t *testing.T) {
	t.Helper()
	if c.raced == 0 || c.memory == 0 || c.unsettled == 0 || c.birthed == 0 {
		t.Errorf("%d fills raced, %d reads from memory, %d with the token of an unsettled write, %d births: wanted some of each", c.raced, c.memory, c.unsettled, c.birthed)
	}
}

// The checker finds each planted bug. Not parallel, like the next two: on a busy machine readers are
// too slow to meet a bug.
func TestPlantsAreFound(t *testing.T) {
	cfg := config(t)
	// it takes seconds, or more on a busy machine
	cfg.For, cfg.UntilFound, cfg.Reads, cfg.Writes = 3*time.Minute, true, 1500, 150
	for _, plant := range verify.Plants {
		t.Run(plant.Name, func(t *testing.T) {
			cfg.Plant, cfg.Progress = plant.Name, t.Output()
			report, err := verify.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if report.Violations() == 0 {
				t.Errorf("not found, though it breaks this: %s\n%s", plant.Breaks, report)
			} else if beyond := report.Beyond(); !strings.Contains(beyond, " in the phase ") {
				t.Errorf("the last line would say %q", beyond)
			}
		})
	}
}

// Readers that only speak lines are checked like those of package cache, and beside them.
func TestClientsAreChecked(t *testing.T) {
	cfg := config(t)
	cfg.For, cfg.Readers, cfg.Clients, cfg.Progress = time.Second, 1, []string{os.Args[0] + " " + asClient}, t.Output()
	cfg.Phases = []string{"redis empty", "subscriber cut", "reader frozen", "master demoted", "patterns flood", "sweeps"}
	report, err := verify.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if report.Violations() > 0 {
		t.Errorf("repeat it with: make verify SEED=%d VERIFY='--for 5m --client ...'", report.Seed)
	}
	for _, p := range report.Phases {
		if c := p.Clients[0]; len(p.Clients) != 2 || c.Client != "package cache" || c.Reads == 0 {
			t.Errorf("%s: %d clients, %+v", p.Phase, len(p.Clients), c)
		}
		if c := p.Clients[1]; c.FromRedis == 0 || c.Loaded == 0 || c.Wrong > 0 || c.PerSecond == 0 {
			t.Errorf("%s: %+v", p.Phase, c)
		}
	}
}

// The bug of a client is found, and counted as the client's.
func TestPlantOfAClientIsFound(t *testing.T) {
	cfg := config(t)
	cfg.For, cfg.UntilFound, cfg.Reads, cfg.Writes = 3*time.Minute, true, 1500, 150
	cfg.Plant, cfg.Readers, cfg.Clients, cfg.Progress = "bare-fill", 0, []string{os.Args[0] + " " + asClient}, t.Output()
	report, err := verify.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c := report.Phases[0].Clients[0]; c.Wrong == 0 || !strings.Contains(report.Beyond(), " from Redis of "+c.Client) {
		t.Errorf("not found: %s", report)
	}
}

// A client that fails ends the run, and the error has the reason and the end of its standard error.
func TestFailingClientEndsTheRun(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.For, cfg.Phases = time.Second, []string{"light load"}
	const ready = `read -r hello; echo '{"type":"ready","version":1,"name":"n"}'; read -r line; `
	for name, c := range map[string]struct{ command, want string }{
		"exit before it is ready": {`echo no module >&2; exit 3`, `exit status 3: no module`},
		"early end":               {ready + `echo done >&2`, `it has ended by itself: done`},
		"not JSON":                {ready + `echo oops; echo why >&2; read -r line; sleep 60`, `read a line: "oops\n": invalid character`},
		"unknown type":            {ready + `echo '{"type":"x"}'; sleep 60`, `unknown type "x"`},
		"unknown key":             {ready + `echo '{"type":"load","keys":["other"]}'; sleep 60`, `it loads "other", a key that it was not asked for`},
		"unknown fetch":           {ready + `echo '{"type":"result","id":7000}'; sleep 60`, `7000 is not a fetch that is under way`},
		"only errors": {ready + `while read -r line; do case $line in *fetch*) id=${line#*'"id":'}; echo "{\"type\":\"result\",\"id\":${id%%,*},\"error\":\"away\"}";; esac; done`,
			`(n) has answered no read: away`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.Clients, cfg.Progress = []string{c.command}, t.Output()
			if _, err := verify.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, wanted %s", err, c.want)
			}
		})
	}
}

// A worker's spot checks find the planted bugs that leave an entry in Redis from before its UNLINK.
// The others have a lease time after it, or no entry in Redis: see docs/testing.md.
func TestSpotChecksFindPlants(t *testing.T) {
	cfg := config(t)
	// keys rest for longer than a second, so that a stale entry is still there
	cfg.For, cfg.UntilStale, cfg.Turn, cfg.Reads, cfg.Writes = 3*time.Minute, true, 5*time.Second, 1500, 20
	for _, plant := range []string{"bare-fill", "left-lease", "false-beacon", "old-birth"} {
		t.Run(plant, func(t *testing.T) {
			cfg.Plant, cfg.Progress = plant, t.Output()
			report, err := verify.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s", plant, report.SpotChecks)
			if report.SpotChecks.Stale == 0 {
				t.Errorf("not found by spot checks\n%s", report)
			}
		})
	}
}

// Shadow reads find bugs that spot checks cannot find: only the value is old, or the tag version is
// too new.
func TestShadowReadsFindPlants(t *testing.T) {
	cfg := config(t)
	cfg.For, cfg.UntilDiffers, cfg.Reads, cfg.Writes = 3*time.Minute, true, 1500, 150
	for _, plant := range []string{"old-snapshot", "late-stamps"} {
		t.Run(plant, func(t *testing.T) {
			cfg.Plant, cfg.Progress = plant, t.Output()
			report, err := verify.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Differences) == 0 {
				t.Errorf("not found\n%s", report)
			}
		})
	}
}
