package bench

import (
	"fmt"
	"slices"
)

// Percentiles of durations in microseconds, by the nearest rank.
type percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int     `json:"n"` // durations
}

// percentilesOf returns zero if there are no durations.
func percentilesOf(micros []float64) percentiles {
	sorted := slices.Sorted(slices.Values(micros))
	n := len(sorted)
	if n == 0 {
		return percentiles{}
	}
	return percentiles{P50: sorted[rank(50, n)], P99: sorted[rank(99, n)], Max: sorted[n-1], N: n}
}

// rank returns the index of the smallest of n sorted values that percent of all do not exceed.
func rank(percent, n int) int { return (percent*n+99)/100 - 1 }

// medianOf returns the median of each percentile over runs, the largest maximum, and the durations
// of one run.
func medianOf(runs []percentiles) percentiles {
	var p50, p99 []float64
	m := percentiles{N: runs[0].N}
	for _, p := range runs {
		p50, p99 = append(p50, p.P50), append(p99, p.P99)
		m.Max = max(m.Max, p.Max)
	}
	m.P50, m.P99 = median(p50), median(p99)
	return m
}

func (p percentiles) String() string {
	return fmt.Sprintf("p50 %.0f, p99 %.0f, max %.0f of %d", p.P50, p.P99, p.Max, p.N)
}
