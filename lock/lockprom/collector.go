// Package lockprom shows what a Locker counts to Prometheus. Applications that do not import it do
// not link the client library.
//
//	prometheus.MustRegister(lockprom.New(locks, nil))
//
// The metrics are listed in docs/locks.md. Their names and labels are an interface: dashboards and
// alerts rely on them. No label has the name of a lock.
package lockprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/lock"
)

// New returns a collector of Statistics at each scrape. It sends nothing to servers. Every metric
// gets labels: two Lockers in one registry need different ones. Nil means none. Safe for concurrent
// use, and after Close.
func New(l *lock.Locker, labels prometheus.Labels) prometheus.Collector { return &collector{l, labels} }

type collector struct {
	locks  *lock.Locker
	labels prometheus.Labels
}

func (c *collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.locks.Statistics()
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("unstale_lock_"+name, help, variable, c.labels)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	acquisitions := desc("acquisitions_total", "Acquisitions that were asked for, by their outcome.", "result")
	count(acquisitions, s.Acquired, "acquired")
	count(acquisitions, s.Held, "held")
	count(acquisitions, s.GuardOpen, "guard_open")
	count(acquisitions, s.Failed, "failed")
	count(desc("retries_total", "Attempts that an unavailable server failed, and that Acquire repeated."), s.Retries)
	count(desc("lost_total", "Acquired locks that were lost before they were released."), s.Lost)
	count(desc("overruns_total", "Sections that continued after their context had ended."), s.Overruns)
	count(desc("unconfirmed_total", "Locks whose release the backend has not confirmed in time."), s.Unconfirmed)
	to <- prometheus.MustNewConstMetric(desc("holding", "Locks that this process holds now."), prometheus.GaugeValue, float64(s.Holding))
	to <- histogram(desc("wait_seconds", "From the call to the acquisition, of those that were acquired."), s.Wait)
	to <- histogram(desc("hold_seconds", "From the acquisition to the release or the loss."), s.Hold)
	to <- histogram(desc("mint_seconds", "Writing tokens to MySQL, with the wait for the section before; failed ones too."), s.Mint)
}

func histogram(d *prometheus.Desc, took lock.Durations) prometheus.Metric {
	buckets := map[float64]uint64{}
	for i, bound := range lock.DurationBounds() {
		buckets[bound.Seconds()] = took.Below[i]
	}
	return prometheus.MustNewConstHistogram(d, took.Count, took.Sum.Seconds(), buckets)
}
