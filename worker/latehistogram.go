package worker

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	lateUnit    = time.Millisecond // the first bucket's bound; each is twice the previous one
	lateBuckets = 20               // up to nine minutes; one more takes the rest
)

// A lateHistogram counts rows by their delay. It is locked once per batch, since there are hundreds
// of thousands of rows per second. Two histograms of the client library, which lock for each row,
// would double the cost of all metrics of a batch. It is a prometheus.Collector.
type lateHistogram struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	counts [lateBuckets + 1]uint64
	sum    float64 // seconds
}

func newLateHistogram(name, help string) *lateHistogram {
	return &lateHistogram{desc: prometheus.NewDesc(prometheus.BuildFQName("unstale", "", name), help, nil, nil)}
}

// add counts a row. The caller has locked it; d is not negative.
func (h *lateHistogram) add(d time.Duration) {
	n := 0
	if d > lateUnit {
		n = min(bits.Len64(uint64((d-1)/lateUnit)), lateBuckets)
	}
	h.counts[n]++
	h.sum += d.Seconds()
}

// Describe implements prometheus.Collector.
func (h *lateHistogram) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect implements prometheus.Collector.
func (h *lateHistogram) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	counts, sum := h.counts, h.sum
	h.mu.Unlock()
	buckets, total := make(map[float64]uint64, lateBuckets), uint64(0)
	for i, n := range counts {
		total += n
		if i < lateBuckets {
			buckets[math.Ldexp(lateUnit.Seconds(), i)] = total
		}
	}
	to <- prometheus.MustNewConstHistogram(h.desc, total, sum, buckets)
}
