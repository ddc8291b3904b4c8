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
	return &collector{cache: c, desc: desc, reads: reads{
		requests:  desc("read_requests_total", "Calls by entry of the map's section reads, by what answered them.", "read", "result"),
		stale:     desc("read_stale_total", "Calls that returned an expired value.", "read"),
		evictions: desc("read_memory_evictions_total", "Values that memory dropped because it was full.", "read"),
		refused:   desc("read_refused_total", "Calls that were loaded and not cached, since no invalidation reaches the key.", "read"),
		seconds:   desc("read_seconds", "Latency of the calls that memory did not answer.", "read"),
		info:      desc("reads_info", "Fingerprints of the maps that the generated code was made from: always 1.", "version"),
	}}
}

type collector struct {
	cache *cache.Cache
	desc  func(name, help string, variable ...string) *prometheus.Desc
	reads reads
}

// reads are the metrics by entry of the map's section reads. There are none before the first call.
type reads struct{ requests, stale, evictions, refused, seconds, info *prometheus.Desc }

// A metric has one value, or one for each value of its label.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	label      []string
	values     map[string]uint64
}

// metrics returns the metrics of a Cache, except those by read.
func metrics(s cache.Statistics, healthy uint64) []metric {
	count := func(name, help string, n uint64) metric {
		return metric{name, help, prometheus.CounterValue, nil, map[string]uint64{"": n}}
	}
	countBy := func(name, help, label string, values map[string]uint64) metric {
		return metric{name, help, prometheus.CounterValue, []string{label}, values}
	}
	gauge := func(name, help string, n uint64) metric {
		return metric{name, help, prometheus.GaugeValue, nil, map[string]uint64{"": n}}
	}
	return []metric{
		countBy("requests_total", "Calls for one key, by what answered them.", "result", map[string]uint64{"memory": s.L1Hits, "redis": s.L2Hits, "miss": s.Misses}),
		countBy("fills_total", "Values that were loaded to be stored, by what became of them.", "result", map[string]uint64{"stored": s.Sets, "refused": s.Refused, "failed": s.Errors}),
		count("loads_total", "Calls of loaders.", s.Loads),
		count("load_errors_total", "Calls of loaders that failed.", s.LoadErrors),
		count("unsettled_total", "Calls that had to load, since their caller's writes are not known to be settled.", s.Unsettled),
		count("invalidations_total", "Keys, tags and patterns that were received or deleted here.", s.Invalidations),
		count("memory_overflows_total", "Values that memory did not keep, since too much was evicted during their load.", s.L1Overflows),
		count("memory_evictions_total", "Values that memory dropped or did not take because it was full.", s.L1Evictions),
		count("pattern_errors_total", "Messages with a pattern that cannot be compiled: each has emptied memory.", s.PatternErrors),
		count("rejected_messages_total", "Messages without a valid MAC, or too old: only their keys and patterns were evicted.", s.Rejected),
		count("stray_answers_total", "Answers of a server that workers had left: none was used.", s.Strays),
		count("stalled_commands_total", "Commands to Redis that timed out because this process did not run.", s.Stalled),
		count("elsewhere_answers_total", "Answers of a server or database that the reader's workers do not write to.", s.Elsewhere),
		count("old_entries_total", "Entries read that workers had unlinked before: workers unlink keys elsewhere.", s.OldEntries),
		count("short_leases_total", "Leases for as long as the map's, which is shorter than configured.", s.ShortLeases),
		countBy("heard_names_total", "Keys and patterns of messages, by whether they have the configured prefix.", "prefix", map[string]uint64{"own": s.NamesOwn, "other": s.NamesHeard - s.NamesOwn}),
		count("unreported_messages_total", "Messages received that this process should have reported and did not.", s.Unreported),
		countBy("shadow_reads_total", "Values of Redis that were compared with their loader, by result.", "result", map[string]uint64{
			"equal": s.Shadow.Equal, "gone": s.Shadow.Gone, "differs": s.Shadow.Differs, "not_deterministic": s.Shadow.NotDeterministic, "unknown": s.Shadow.Unknown,
		}),
		gauge("memory_values", "Approximate number of values in process memory (L1).", uint64(s.L1Size)),
		gauge("healthy", "1 while values are cached as configured, 0 while Redis is unavailable or L1 is closed.", healthy),
	}
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics(cache.Statistics{}, 0) {
		to <- c.desc(m.name, m.help, m.label...)
	}
	for _, d := range []*prometheus.Desc{c.reads.requests, c.reads.stale, c.reads.evictions, c.reads.refused, c.reads.seconds, c.reads.info} {
		to <- d
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s, healthy := c.cache.Statistics(), uint64(0)
	if c.cache.Healthy() == nil {
		healthy = 1
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	for _, m := range metrics(s, healthy) {
		for value, n := range m.values {
			send(c.desc(m.name, m.help, m.label...), m.kind, n, []string{value}[:len(m.label)]...)
		}
	}
	for name, r := range s.Reads {
		for result, n := range map[string]uint64{"memory": r.L1Hits, "redis": r.L2Hits, "miss": r.Misses, "error": r.Errors} {
			send(c.reads.requests, prometheus.CounterValue, n, name, result)
		}
		send(c.reads.stale, prometheus.CounterValue, r.Stale, name)
		send(c.reads.evictions, prometheus.CounterValue, r.L1Evictions, name)
		send(c.reads.refused, prometheus.CounterValue, r.Refused, name)
		buckets := map[float64]uint64{}
		for i, bound := range cache.LatencyBounds() {
			buckets[bound] = r.Latencies[i]
		}
		to <- prometheus.MustNewConstHistogram(c.reads.seconds, r.Latencies[len(buckets)], r.Seconds, buckets, name)
	}
	for _, version := range s.ReadsVersions {
		send(c.reads.info, prometheus.GaugeValue, 1, version)
	}
}
