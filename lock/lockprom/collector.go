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
func New(l *lock.Locker, labels prometheus.Labels) prometheus.Collector {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("unstale_lock_"+name, help, variable, labels)
	}
	return &collector{
		locks:        l,
		acquisitions: desc("acquisitions_total", "Acquisitions that were asked for, by their outcome.", "result"),
		retries:      desc("retries_total", "Attempts that an unavailable server failed, and that Acquire repeated."),
		lost:         desc("lost_total", "Acquired locks that were lost before they were released."),
		overruns:     desc("overruns_total", "Sections that continued after their context had ended."),
		unconfirmed:  desc("unconfirmed_total", "Locks whose release the backend has not confirmed in time."),
		holding:      desc("holding", "Locks that this process holds now."),
		wait:         desc("wait_seconds", "From the call to the acquisition, of those that were acquired."),
		hold:         desc("hold_seconds", "From the acquisition to the release or the loss."),
		mint:         desc("mint_seconds", "Writing tokens to MySQL, with the wait for the section before; failed ones too."),
	}
}

type collector struct {
	locks *lock.Locker

	acquisitions, retries, lost, overruns, unconfirmed, holding, wait, hold, mint *prometheus.Desc
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.acquisitions, c.retries, c.lost, c.overruns, c.unconfirmed, c.holding, c.wait, c.hold, c.mint} {
		to <- d
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.locks.Statistics()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(c.acquisitions, s.Acquired, "acquired")
	count(c.acquisitions, s.Held, "held")
	count(c.acquisitions, s.GuardOpen, "guard_open")
	count(c.acquisitions, s.Failed, "failed")
	count(c.retries, s.Retries)
	count(c.lost, s.Lost)
	count(c.overruns, s.Overruns)
	count(c.unconfirmed, s.Unconfirmed)
	to <- prometheus.MustNewConstMetric(c.holding, prometheus.GaugeValue, float64(s.Holding))
	to <- histogram(c.wait, s.Wait)
	to <- histogram(c.hold, s.Hold)
	to <- histogram(c.mint, s.Mint)
}

func histogram(d *prometheus.Desc, took lock.Durations) prometheus.Metric {
	buckets := map[float64]uint64{}
	for i, bound := range lock.DurationBounds() {
		buckets[bound.Seconds()] = took.Below[i]
	}
	return prometheus.MustNewConstHistogram(d, took.Count, took.Sum.Seconds(), buckets)
}
