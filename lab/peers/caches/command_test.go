package caches

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

// No reader of unstale returns or keeps an old value in any race. The test prints the results of
// the other libraries and makes no demand on them.
func TestRaces(t *testing.T) {
	t.Parallel()
	outcomes, err := runRaces(t.Context(), servers.Kind(os.Getenv("UNSTALE_TEST_DB")), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	r := report{Races: outcomes}
	if err := r.judge(); err != nil {
		t.Error(err)
	}
	if err := r.write(t.Output(), false); err != nil {
		t.Error(err)
	}
	for _, race := range races {
		for _, p := range peers() {
			took := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Race == race.Name && o.Peer == p.Name })
			if took != race.fits(p) {
				t.Errorf("%s, %s: run %v, wanted %v", race.Name, p.Name, took, race.fits(p))
			}
		}
	}
}

// An old value of unstale is an error. An old value of another library is not.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := report{Races: []outcome{{Race: "tag", Peer: "unstale", Old: []string{placeRedis}}}}
	if err := r.judge(); err == nil {
		t.Error("an old value of ours passed")
	}
	r.Races[0].Peer = "gocache"
	if err := r.judge(); err != nil {
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
		for _, module := range p.Modules {
			if !strings.Contains(string(file), "\t"+module+"\n") {
				t.Errorf("%s: go.mod does not have %s", p.Name, module)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"fast":       `unknown argument "fast"`,
		"--nonsense": "flag provided but not defined",
	} {
		var out, progress bytes.Buffer
		if code := Run(t.Context(), strings.Fields(args), &out, &progress); code != 2 || !strings.Contains(progress.String(), want) {
			t.Errorf("%s: exit code %d\n%s", args, code, &progress)
		}
	}
	var out, progress bytes.Buffer
	if code := Run(t.Context(), []string{"--help"}, &out, &progress); code != 0 || !strings.Contains(progress.String(), "make bench-cache-peers BENCH=") {
		t.Errorf("--help: exit code %d\n%s", code, &progress)
	}
}
