package worker

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Each row is in the bucket of its bound and in all above, and a histogram of the client library
// says the same.
func TestLateHistogram(t *testing.T) {
	t.Parallel()
	h := newLateHistogram("ours", "")
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "theirs", Buckets: prometheus.ExponentialBuckets(0.001, 2, lateBuckets)})
	var rows []time.Duration
	for i := range lateBuckets + 2 {
		bound := lateUnit << i
		rows = append(rows, bound-1, bound, bound+1)
	}
	for _, d := range append(rows, 0, 1, time.Hour, math.MaxInt64) {
		h.observe(d)
		theirs.Observe(d.Seconds())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(h, theirs)
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatal(families, err)
	}
	ours, want := families[0].GetMetric()[0].GetHistogram(), families[1].GetMetric()[0].GetHistogram()
	if families[0].GetName() == "theirs" {
		ours, want = want, ours
	}
	if ours.GetSampleCount() != want.GetSampleCount() || math.Abs(ours.GetSampleSum()-want.GetSampleSum()) > 1 {
		t.Errorf("%d rows, %v seconds; wanted %d, %v", ours.GetSampleCount(), ours.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
	}
	if len(ours.GetBucket()) != len(want.GetBucket()) {
		t.Fatalf("%d buckets, wanted %d", len(ours.GetBucket()), len(want.GetBucket()))
	}
	for i, b := range want.GetBucket() {
		if got := ours.GetBucket()[i]; got.GetUpperBound() != b.GetUpperBound() || got.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %d: %v of %v, wanted %v of %v", i, got.GetCumulativeCount(), got.GetUpperBound(), b.GetCumulativeCount(), b.GetUpperBound())
		}
	}
}
