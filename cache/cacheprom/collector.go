// Package cacheprom shows what a Cache counts to Prometheus. Applications that do not import it do
// not link the client library.
//
//	prometheus.MustRegister(cacheprom.New(products, prometheus.Labels{"cache": "products"}))
//
// The metrics are listed in docs/cache.md. Their names and labels are an interface: dashboards and
// alerts rely on them.
package cacheprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/cache"
)

// New returns a collector of the results of Statistics and Healthy at each scrape. It sends nothing
// to Redis. Every metric gets labels: two caches in one registry need different ones. Nil means
// none. Safe for concurrent use, and after Close.
func New(c *cache.Cache, labels prometheus.Labels) prometheus.Collector {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("unstale_cache_"+name, help, variable, labels)
	}
	return &collector{
		cache:         c,
		requests:      desc("requests_total", "Calls for one key, by what answered them.", "result"),
		fills:         desc("fills_total", "Values that were loaded to be stored, by what became of them.", "result"),
		loads:         desc("loads_total", "Calls of loaders."),
		loadErrors:    desc("load_errors_total", "Calls of loaders that failed."),
		unsettled:     desc("unsettled_total", "Calls that had to load, since their caller's writes are not known to be settled."),
		invalidations: desc("invalidations_total", "Keys, tags and patterns that were received or deleted here."),
		overflows:     desc("memory_overflows_total", "Values that memory did not keep, since too much was evicted during their load."),
		evictions:     desc("memory_evictions_total", "Values that memory dropped or did not take because it was full."),
		patternErrors: desc("pattern_errors_total", "Messages with a pattern that cannot be compiled: each has emptied memory."),
		rejected:      desc("rejected_messages_total", "Messages without a valid MAC, or too old: only their keys and patterns were evicted."),
		strays:        desc("stray_answers_total", "Answers of a server that workers had left: none was used."),
		stalled:       desc("stalled_commands_total", "Commands to Redis that timed out because this process did not run."),
		elsewhere:     desc("elsewhere_answers_total", "Answers of a server or database that the reader's workers do not write to."),
		oldEntries:    desc("old_entries_total", "Entries read that workers had unlinked before: workers unlink keys elsewhere."),
		shortLeases:   desc("short_leases_total", "Leases for as long as the map's, which is shorter than configured."),
		heardNames:    desc("heard_names_total", "Keys and patterns of messages, by whether they have the configured prefix.", "prefix"),
		unreported:    desc("unreported_messages_total", "Messages received that this process should have reported and did not."),
		shadowReads:   desc("shadow_reads_total", "Values of Redis that were compared with their loader, by result.", "result"),
		memoryValues:  desc("memory_values", "Approximate number of values in process memory (L1)."),
		healthy:       desc("healthy", "1 while values are cached as configured, 0 while Redis is unavailable or L1 is closed."),
		reads: reads{
			requests:  desc("read_requests_total", "Calls by entry of the map's section reads, by what answered them.", "read", "result"),
			stale:     desc("read_stale_total", "Calls that returned an expired value.", "read"),
			evictions: desc("read_memory_evictions_total", "Values that memory dropped because it was full.", "read"),
			refused:   desc("read_refused_total", "Calls that were loaded and not cached, since no invalidation reaches the key.", "read"),
			seconds:   desc("read_seconds", "Latency of the calls that memory did not answer.", "read"),
			info:      desc("reads_info", "Fingerprints of the maps that the generated code was made from: always 1.", "version"),
		},
	}
}

type collector struct {
	cache *cache.Cache

	requests, fills, loads, loadErrors, unsettled, invalidations, overflows, evictions, patternErrors, rejected, strays, stalled, elsewhere, oldEntries, shortLeases, heardNames, unreported, shadowReads, memoryValues, healthy *prometheus.Desc

	reads reads
}

// reads are the metrics by entry of the map's section reads.
type reads struct{ requests, stale, evictions, refused, seconds, info *prometheus.Desc }

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.fills, c.loads, c.loadErrors, c.unsettled, c.invalidations, c.overflows, c.evictions, c.patternErrors, c.rejected, c.strays, c.stalled, c.elsewhere, c.oldEntries, c.shortLeases, c.heardNames, c.unreported, c.shadowReads, c.memoryValues, c.healthy,
		c.reads.requests, c.reads.stale, c.reads.evictions, c.reads.refused, c.reads.seconds, c.reads.info} {
		to <- d
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.cache.Statistics()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	count(c.requests, s.L1Hits, "memory")
	count(c.requests, s.L2Hits, "redis")
	count(c.requests, s.Misses, "miss")
	count(c.fills, s.Sets, "stored")
	count(c.fills, s.Refused, "refused")
	count(c.fills, s.Errors, "failed")
	count(c.loads, s.Loads)
	count(c.loadErrors, s.LoadErrors)
	count(c.unsettled, s.Unsettled)
	count(c.invalidations, s.Invalidations)
	count(c.overflows, s.L1Overflows)
	count(c.evictions, s.L1Evictions)
	count(c.patternErrors, s.PatternErrors)
	count(c.rejected, s.Rejected)
	count(c.strays, s.Strays)
	count(c.stalled, s.Stalled)
	count(c.elsewhere, s.Elsewhere)
	count(c.oldEntries, s.OldEntries)
	count(c.shortLeases, s.ShortLeases)
	count(c.heardNames, s.NamesOwn, "own")
	count(c.heardNames, s.NamesHeard-s.NamesOwn, "other")
	count(c.unreported, s.Unreported)
	count(c.shadowReads, s.Shadow.Equal, "equal")
	count(c.shadowReads, s.Shadow.Gone, "gone")
	count(c.shadowReads, s.Shadow.Differs, "differs")
	count(c.shadowReads, s.Shadow.NotDeterministic, "not_deterministic")
	count(c.shadowReads, s.Shadow.Unknown, "unknown")
	gauge(c.memoryValues, s.L1Size)
	healthy := 0
	if c.cache.Healthy() == nil {
		healthy = 1
	}
	gauge(c.healthy, healthy)
	for name, r := range s.Reads {
		count(c.reads.requests, r.L1Hits, name, "memory")
		count(c.reads.requests, r.L2Hits, name, "redis")
		count(c.reads.requests, r.Misses, name, "miss")
		count(c.reads.requests, r.Errors, name, "error")
		count(c.reads.stale, r.Stale, name)
		count(c.reads.evictions, r.L1Evictions, name)
		count(c.reads.refused, r.Refused, name)
		buckets := map[float64]uint64{}
		for i, bound := range cache.LatencyBounds() {
			buckets[bound] = r.Latencies[i]
		}
		to <- prometheus.MustNewConstHistogram(c.reads.seconds, r.Latencies[len(buckets)], r.Seconds, buckets, name)
	}
	for _, version := range s.ReadsVersions {
		to <- prometheus.MustNewConstMetric(c.reads.info, prometheus.GaugeValue, 1, version)
	}
}
