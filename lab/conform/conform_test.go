package conform_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/conform"
)

// asClient is the first argument that makes this program a client. The options follow it.
const asClient = "client"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asClient {
		o := conform.ClientOptions{L1: slices.Contains(os.Args, "l1")}
		if last := os.Args[len(os.Args)-1]; strings.Contains(last, "-") {
			o.Plant = last
		}
		if err := conform.ServeClient(context.Background(), os.Stdin, os.Stdout, o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// examine judges this program as a client.
func examine(t *testing.T, cfg conform.Config, options ...string) *conform.Report {
	t.Helper()
	cfg.Command, cfg.Progress = append([]string{os.Args[0], asClient}, options...), t.Output()
	report, err := conform.Examine(t.Context(), cfg)
	if report != nil {
		t.Logf("\n%s", report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// The short form: all cases, all orders of one reader, and some of the schedules with an event and
// of two readers. Package cache is accepted, with an in-process cache and without.
func TestRightClientsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, options := range [][]string{{}, {"l1"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			t.Parallel()
			report := examine(t, conform.Config{Every: 41}, options...)
			if report.Rejected() || report.Schedules() < 180 {
				t.Errorf("%d schedules, broken: %s", report.Schedules(), report.Broken())
			}
		})
	}
}

// Each planted bug is found by the name of the rule that it breaks. Those that store an old value
// are found by that too.
func TestWrongClientsAreRejected(t *testing.T) {
	t.Parallel()
	for _, plant := range conform.Plants {
		t.Run(plant.Name, func(t *testing.T) {
			t.Parallel()
			report := examine(t, conform.Config{Every: 41}, "l1", plant.Name)
			if !report.Rejected() || report.Breaches[0].Rule != plant.Rule {
				t.Errorf("broken: %q, wanted %s first", report.Broken(), plant.Rule)
			}
			follow := []string{plant.Rule, "stale-read", "stale-entry", "unreadable"}
			for _, b := range report.Breaches {
				if !slices.Contains(follow, b.Rule) {
					t.Errorf("the rule %s is broken too: %s", b.Rule, b.Found)
				}
			}
		})
	}
}

// In a Cluster, a slot that moves during a read makes package cache break no rule, and a reader
// without leases is found.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	for plant, c := range map[string]struct{ schedules, broken string }{
		"":           {"cluster", ""},
		"bare-fill":  {"cluster/014", "stale-entry, stale-read"},
		"left-lease": {"cluster/081", "release"},
		"own-lease":  {"cluster/000", "names, stores"},
	} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			report := examine(t, conform.Config{Only: []string{c.schedules}}, strings.Fields(plant)...)
			if report.Broken() != c.broken {
				t.Errorf("broken: %q, wanted %q", report.Broken(), c.broken)
			}
		})
	}
}

// The schedules find old values without the rules about commands: a reader that stores with SET is
// found in an order of one reader and in one of two.
func TestSchedulesFindOldValues(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"order/07/key", "pair"} {
		report := examine(t, conform.Config{Only: []string{kind}, Seed: 7, Pairs: 100, Most: 1000}, "bare-fill")
		if !strings.Contains(report.Broken(), "stale-entry") {
			t.Errorf("%s: broken: %q, wanted stale-entry among them", kind, report.Broken())
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]conform.Config{
		"name the command":        {},
		"there is no schedule":    {Command: []string{"x"}, Only: []string{"order/99"}},
		"both must be at least 1": {Command: []string{"x"}, Every: -1},
	} {
		if err := cfg.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, wanted %q", cfg, err, want)
		}
	}
}
