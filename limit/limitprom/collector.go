// Package limitprom exports the statistics of a Limiter to Prometheus. Only applications that
// import it link the Prometheus client.
//
//	prometheus.MustRegister(limitprom.New(codes, prometheus.Labels{"limit": "codes"}))
//
// See docs/limits.md for the metrics. No label contains a subject.
package limitprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/limit"
)

// New returns a collector that reads l.Statistics at each scrape and does not query Redis. Every
// metric has the given labels, which may be nil. If a registry has several limiters, each needs
// different labels. The collector is safe for concurrent use.
func New(l *limit.Limiter, labels prometheus.Labels) prometheus.Collector {
	return &collector{l, prometheus.NewDesc("unstale_limit_attempts_total", "Attempts, by what was decided.", []string{"result"}, labels)}
}

type collector struct {
	limiter  *limit.Limiter
	attempts *prometheus.Desc
}

func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- c.attempts }

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.limiter.Statistics()
	for result, n := range map[string]uint64{"allowed": s.Allowed, "refused": s.Refused, "unsure": s.Unsure} {
		to <- prometheus.MustNewConstMetric(c.attempts, prometheus.CounterValue, float64(n), result)
	}
}
