package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/invalidation"
)

// mapGauges are the metrics of the current map. One goroutine at a time changes them.
type mapGauges struct {
	info     *prometheus.GaugeVec // by version
	reads    *prometheus.GaugeVec // by fingerprint; empty for a map without reads
	differs  prometheus.Gauge
	entities *entityCounts
	// rows and values without an effect, which show nowhere else
	dropped    *entityCounts
	undeclared *entityCounts
	shown      *invalidation.Map
}

// show shows the map in use, and whether its file says something else, which the worker has refused
// or cannot read.
func (g *mapGauges) show(now *invalidation.Map, differs bool) {
	g.differs.Set(oneIf(differs))
	if now == g.shown {
		return
	}
	for _, counts := range []*entityCounts{g.entities, g.dropped, g.undeclared} {
		counts.set(now)
	}
	before := [2]string{}
	if g.shown != nil {
		before = [2]string{g.shown.Version(), g.shown.Reads().Version()}
	}
	setOnly(g.info, before[0], now.Version())
	setOnly(g.reads, before[1], now.Reads().Version())
	g.shown = now
}

// setOnly replaces the series of one value by that of another. An empty value has none.
func setOnly(vec *prometheus.GaugeVec, before, now string) {
	if now != "" {
		vec.WithLabelValues(now).Set(1)
	}
	if before != now {
		vec.DeleteLabelValues(before)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
