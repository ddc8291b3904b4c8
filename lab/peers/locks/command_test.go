package locks

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

// Every peer is measured, and all who wait are served. How fast is not for a test to say.
func TestMeasure(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := Run(t.Context(), strings.Fields("--pairs 40 --waiters 10 --json"), &out, t.Output()); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Pairs) != len(peers()) {
		t.Fatalf("%d of %d peers are measured", len(r.Pairs), len(peers()))
	}
	hand := 0
	for i, p := range peers() {
		if r.Pairs[i].Peer != p.Name || r.Pairs[i].Kind != p.Kind || r.Pairs[i].Servers != p.Servers || r.Pairs[i].Median <= 0 || r.Pairs[i].OfBest < 1 {
			t.Errorf("%s: %+v", p.Name, r.Pairs[i])
		}
		if p.Mint {
			continue
		}
		least := 2 * float64(p.Servers) // to release and to acquire, at each
		if p.Kind == inZooKeeper {
			least = 2
		}
		for _, processes := range []int{1, 10} {
			h := r.HandOvers[hand]
			hand++
			if h.Peer != p.Name || h.Kind != p.Kind || h.Processes != processes || h.Requests < least || h.Commands < h.Requests || h.Each != 1 || h.Least != 1 {
				t.Errorf("%s: %+v", p.Name, h)
			}
		}
		for i, processes := range []int{1, 5} {
			if h := r.Turns[hand-2+i]; h.Peer != p.Name || h.Kind != p.Kind || h.Processes != processes || h.Waiters != 5 || h.Median <= 0 {
				t.Errorf("%s: %+v", p.Name, h)
			}
		}
	}
	if err := r.write(t.Output(), false); err != nil {
		t.Error(err)
	}
}

// The versions that are printed are those that are linked.
func TestVersions(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peers() {
		if p.Module != "" && !strings.Contains(string(file), "\t"+p.Module+"\n") {
			t.Errorf("%s: go.mod does not have %s", p.Name, p.Module)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"fast":         `unknown argument "fast"`,
		"--nonsense":   "flag provided but not defined",
		"--pairs 9":    "--pairs 9: must be 10 to 1,000,000",
		"--waiters 15": "--waiters 15: must be a multiple of ten, at most 1000",
	} {
		var out, progress bytes.Buffer
		if code := Run(t.Context(), strings.Fields(args), &out, &progress); code != 2 || !strings.Contains(progress.String(), want) {
			t.Errorf("%s: exit code %d\n%s", args, code, &progress)
		}
	}
	var out, progress bytes.Buffer
	if code := Run(t.Context(), []string{"--help"}, &out, &progress); code != 0 || !strings.Contains(progress.String(), "BENCH=") {
		t.Errorf("--help: exit code %d\n%s", code, &progress)
	}
}
