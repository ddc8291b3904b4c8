package keyspace_test

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// A sample gives an approximate number of matches, the whole keyspace the exact one, and nothing is
// removed.
func TestEstimate(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL), SweepShare: 1})
	fill(t, r.Client, names(18_000, "product:%d")...)
	fill(t, r.Client, names(2_000, "list:%d")...)
	patterns := []string{"list:*", "product:*", "product:1*", "*", "none:*"}
	exact, err := k.Contents.Estimate(t.Context(), patterns, 1_000_000)
	if err != nil || exact.Total != 20_000 || exact.Sampled < 20_000 {
		t.Fatalf("%+v, %v", exact, err)
	}
	if want := "[2000 18000 9111 20000 0]"; fmt.Sprint(exact.Matched) != want && exact.Sampled == exact.Total {
		t.Errorf("matched %v, want %s", exact.Matched, want)
	}
	about, err := k.Contents.Estimate(t.Context(), patterns, 4000)
	if err != nil || about.Sampled < 4000 || about.Sampled > 8000 {
		t.Fatalf("%+v, %v", about, err)
	}
	if n := about.Matched[0]; n < 1300 || n > 2700 { // seven standard deviations away
		t.Errorf("some %d lists, there are 2000", n)
	}
	if n := r.Client.DBSize(t.Context()).Val(); n != 20_000 {
		t.Errorf("%d keys are left", n)
	}
	_, err = k.Contents.Estimate(t.Context(), []string{"a["}, 10)
	wantRefusal(t, err, "a[")
}
