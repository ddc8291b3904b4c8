package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// readerArgument makes the test's program a reader process.
const readerArgument = "reader"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == readerArgument {
		if err := ReadAtOnce(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// Each mode runs to its end at a small scale and fills every field of its report. The test ignores
// the figures.
func TestModes(t *testing.T) {
	t.Parallel()
	for name := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile("../../mapping.yaml")
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Map: string(src), Workers: 2, Runs: 1, Scale: 100, Reader: []string{os.Args[0], readerArgument}}
			if name == "history" || name == "migrate" { // ten million
				cfg.Scale = 1000
			}
			if name == "heavy" {
				cfg.Binary, cfg.Only = buildProgram(t), "found_keys"
			}
			// The mode reads the processor time of its servers, so it cannot share them.
			if name == "cost" || name == "proof" {
				cfg.RedisURL, cfg.MySQLDSN = testenv.OwnRedis(t).URL(), testenv.OwnMySQL(t).DSN("")
			} else {
				cfg.RedisURL, cfg.MySQLDSN = testenv.Redis(t).URL, testenv.MySQL(t).DSN
			}
			r, err := Run(t.Context(), name, cfg)
			if name == "migrate" && errors.Is(err, errNothingToMeasure) {
				return // TestMigrate has steps to measure
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Mode != name || r.Ours <= 0 || r.Floor <= 0 || r.Unit == "" || r.Runs != 1 || r.Machine.Cores == 0 {
				t.Errorf("%s", text)
			}
			if name == "cache" {
				wantOneLoad(t, r.Details)
			}
		})
	}
}

// A worker stays below 128 MB with rows that are as heavy as the largest limits of a map allow,
// whether the rows give their values or lookups find them.
func TestHeavyRowsMemory(t *testing.T) {
	t.Parallel()
	cfg := Config{Binary: buildProgram(t), Runs: 1, Scale: 100}
	for _, kind := range []string{"long_patterns", "most_params", "most_patterns", "found_long_patterns", "found_too_many"} {
		cfg.Only, cfg.RedisURL, cfg.MySQLDSN = kind, testenv.Redis(t).URL, testenv.MySQL(t).DSN
		r, err := Run(t.Context(), "heavy", cfg)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := r.Details[kind+"_memory_mb"].(float64); m <= 0 || m >= 128 {
			t.Errorf("%s: a worker has %v MB", kind, m)
		}
	}
}

// buildProgram builds the program without the race detector, which needs many times the memory.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "unstale")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-race=false", "-o", path, "./cmd/unstale")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// wantOneLoad checks that the mode cache has measured all that it promises, and that callers of two
// processes made one load.
func wantOneLoad(t *testing.T, details map[string]any) {
	t.Helper()
	for _, name := range []string{"memory_hit", "redis_hit", "redis_hit_with_tag", "miss", "miss_with_tag", "miss_over_link", "warm_up"} {
		if p, _ := details[name].(pair); p.Ours <= 0 || p.Floor <= 0 || p.Ratio <= 0 || p.Unit == "" {
			t.Errorf("%s: %v", name, details[name])
		} else if correct := p.Correct > 0 && p.CorrectRatio > 0; correct != (name != "memory_hit") {
			t.Errorf("%s: correct floor %v", name, p)
		}
	}
	// The heap also has what other tests of this process allocate, so only the program can measure it.
	if p, _ := details["memory_of_entry"].(pair); p.Ours == 0 || p.Floor == 0 || p.Unit == "" {
		t.Errorf("memory_of_entry: %v", p)
	}
	for _, name := range []string{"load_floor", "load", "load_with_memory"} {
		if f, _ := details[name].(loadFigure); f.HitRatio <= 0 || f.HitRatio >= 1 || f.Reads <= 0 || f.Latency.P99 <= 0 || f.Bytes <= 0 {
			t.Errorf("%s: %v", name, details[name])
		}
	}
	if loads, _ := details["at_once_loads"].([]float64); !slices.Equal(loads, []float64{1}) || details["at_once_callers"] != 1000 {
		t.Errorf("%v callers made %v loads", details["at_once_callers"], details["at_once_loads"])
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), "nonsense", Config{}); err == nil || !strings.Contains(err.Error(), "the modes are ") {
		t.Error(err)
	}
	if _, err := Run(t.Context(), "sweep", Config{Runs: -1}); err == nil || !strings.Contains(err.Error(), "runs -1") {
		t.Error(err)
	}
	r := testenv.Redis(t)
	if err := r.Client.Set(t.Context(), "somebody's", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), "sweep", Config{RedisURL: r.URL}); err == nil || !strings.Contains(err.Error(), "the database has 1 keys") {
		t.Error(err)
	}
	if n := r.Client.DBSize(t.Context()).Val(); n != 1 {
		t.Errorf("%d keys are left of somebody's", n)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for want, list := range map[float64][]float64{2: {3, 1, 2}, 1.5: {2, 1}, 7: {7}} {
		if got := median(list); got != want {
			t.Errorf("median of %v is %v", list, got)
		}
	}
}
