package outboxes

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/bench"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Every participant unlinks all keys and leases, which Race looks after, and each peer publishes
// once for each row.
func TestAllDoTheWork(t *testing.T) {
	t.Parallel()
	const rows = 200
	var out, progress bytes.Buffer
	args := []string{"--json", "--runs", "1", "--rows", "200", "--mysql-dsn", testenv.MySQL(t).DSN, "--redis-url", testenv.Redis(t).URL}
	if code := Run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &progress)
	}
	var s bench.Standing
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if len(s.Results) != 2+len(peers()) || s.Best == "" || s.Ratio <= 0 || s.Rows != rows || s.Runs != 1 {
		t.Errorf("%s", &out)
	}
	for i, r := range s.Results {
		if r.Rate <= 0 || !strings.Contains(progress.String(), r.Name) {
			t.Errorf("%+v", r)
		}
		if i > 0 && (r.Unlinks < rows || r.Publishes < rows) {
			t.Errorf("%s made %d rows with %d UNLINK and %d PUBLISH", r.Name, rows, r.Unlinks, r.Publishes)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--rows 99":  "--rows 99: must be 100 to 1000000",
		"--runs 0":   "--runs 0: must be 1 to 100",
		"fast":       `unknown argument "fast"`,
		"--nonsense": "flag provided but not defined",
	} {
		var out, progress bytes.Buffer
		if code := Run(t.Context(), strings.Fields(args), &out, &progress); code != 2 || !strings.Contains(progress.String(), want) {
			t.Errorf("%s: exit code %d\n%s", args, code, &progress)
		}
	}
	var out, progress bytes.Buffer
	if code := Run(t.Context(), []string{"--help"}, &out, &progress); code != 0 || !strings.Contains(progress.String(), "make bench-peers BENCH=") {
		t.Errorf("--help: exit code %d\n%s", code, &progress)
	}
}
