package verifylocks_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/verifylocks"
)

// holder is the argument that makes this program a holder process.
const holder = "holder"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == holder {
		if err := verifylocks.Hold(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// config returns the configuration of a short run.
func config(t *testing.T) verifylocks.Config {
	t.Helper()
	return verifylocks.Config{
		Holder: []string{os.Args[0], holder}, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Turn: time.Second, Progress: t.Output(),
	}
}

// The short form of the checker: each backend in every phase that concerns it, in two parallel
// groups. Guarded sections lose nothing. The turns are too short for bare sections to lose updates
// for sure: the long form demands it of each backend, and here the plants lose some.
func TestNoGuardedUpdateIsLost(t *testing.T) {
	t.Parallel()
	for _, backends := range [][]string{{"redis", "redlock"}, {"zookeeper"}} {
		t.Run(strings.Join(backends, ", "), func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Backends, cfg.Rounds = backends, 1
			measure(t, cfg)
		})
	}
}

// measure runs the checker, which must find nothing but must have run sections.
func measure(t *testing.T, cfg verifylocks.Config) {
	t.Helper()
	report, err := verifylocks.Run(t.Context(), cfg)
	if report != nil {
		t.Logf("\n%s", report)
	}
	if err != nil {
		t.Fatal(err)
	}
	if report.Wrong() > 0 {
		t.Errorf("repeat it with: make verify-locks SEED=%d", report.Seed)
	}
	for _, p := range report.Phases {
		for _, l := range p.Lanes {
			if l.Sections == 0 {
				t.Errorf("%s, %s: no section was committed: nothing was tested", p.Phase, l.Backend)
			}
		}
	}
}

// The checker finds each bug that is planted, and one of them with each backend.
func TestPlantsAreFound(t *testing.T) {
	t.Parallel()
	type planted struct {
		verifylocks.Plant
		backend string
		phases  []string // none: all
	}
	var all []planted
	for _, plant := range verifylocks.Plants {
		all = append(all, planted{plant, "redis", nil})
	}
	all = append(all, planted{verifylocks.Plants[0], "redlock", []string{"most instances empty"}}, planted{verifylocks.Plants[0], "zookeeper", []string{"nodes removed"}})
	for _, plant := range all {
		t.Run(plant.backend+", "+plant.Name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Backends, cfg.Phases = []string{plant.backend}, plant.phases
			cfg.Plant, cfg.UntilFound, cfg.Sections = plant.Name, true, 1<<30 // until it is found
			// it takes seconds, on a busy machine more
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			report, err := verifylocks.Run(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if report.Wrong() == 0 {
				t.Errorf("not found, though it breaks this: %s\n%s", plant.Breaks, report)
			}
		})
	}
}

// A backend whose bare sections have lost nothing is named, if they were to lose some.
func TestBlind(t *testing.T) {
	t.Parallel()
	lost := func(backend string, updates int64) []verifylocks.Lane {
		return []verifylocks.Lane{{Backend: backend, Guarded: true, Sections: 9}, {Backend: backend, Sections: 9, Lost: updates}}
	}
	report := &verifylocks.Report{Phases: []*verifylocks.Result{
		{Phase: "redis empty", Lanes: lost("redis", 1)},
		{Phase: "most instances empty", Lanes: lost("redlock", 0)},
		{Phase: "zookeeper killed", Lanes: lost("zookeeper", 0)}, // which takes no lease
	}}
	if blind := report.Blind(); !slices.Equal(blind, []string{"redlock"}) {
		t.Errorf("nothing is proven about %q", blind)
	}
}

// Run refuses a configuration that cannot run.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]verifylocks.Config{
		`there is no backend "etcd"; the backends are: redis, redlock, zookeeper`:    {Backends: []string{"etcd"}},
		`phase "failover" is one of backend "redis", which is not chosen`:            {Backends: []string{"redlock"}, Phases: []string{"failover"}},
		`there is no plant "bug"; the plants are no-guard, old-snapshot, late-write`: {Plant: "bug"},
	} {
		cfg.Holder = []string{"true"}
		if _, err := verifylocks.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("%v, wanted %s", err, want)
		}
	}
}
