package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/invalidation"
)

// mapGauges are the metrics of the current map. One goroutine at a time changes them.
type mapGauges struct {
	info     *prometheus.GaugeVec // by version
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
	g.info.WithLabelValues(now.Version()).Set(1)
	if g.shown != nil && g.shown.Version() != now.Version() {
		g.info.DeleteLabelValues(g.shown.Version())
	}
	g.shown = now
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
