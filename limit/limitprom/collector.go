// Package limitprom shows what a Limiter counts to Prometheus. Applications that do not import it
// do not link the client library.
//
//	prometheus.MustRegister(limitprom.New(codes, prometheus.Labels{"limit": "codes"}))
//
// The metrics are listed in docs/limits.md. Their names and labels are an interface: dashboards and
// alerts rely on them. No label has a subject.
package limitprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/limit"
)

// New makes a collector of what Statistics say at each scrape; it sends nothing to Redis. labels
// are put on every metric: two limiters of one registry need different ones. Nil: none. Safe for
// concurrent use.
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
