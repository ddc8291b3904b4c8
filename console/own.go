package console

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/status"
)

// An own is the state of the worker of this process, which is known without MySQL.
type own struct {
	Says   string             // what the worker does, as far as it reports it
	gauges map[string]float64 // by name, summed over labels
}

// own returns nil if this process has no worker.
func (c *Console) own() *own {
	w := c.cfg.Worker
	if w == nil {
		return nil
	}
	o := &own{gauges: readGauges(w)}
	switch alive, ready := w.Alive(), w.Ready(); {
	case alive != nil:
		o.Says = "is stuck: " + alive.Error()
	case o.gauges["unstale_paused"] > 0:
		o.Says = "is paused, as all workers were at its last look: rows wait"
	case ready != nil:
		o.Says = "does not work: " + ready.Error()
	case o.gauges["unstale_healing"] > 0:
		o.Says = "unlinks again what Redis has lost"
	case o.gauges["unstale_redis_masters_away"] > 0:
		o.Says = "reports that a part of Redis does not answer"
	default:
		o.Says = "reports no problem"
	}
	if o.Says += "; it uses map " + w.Map().Version(); o.gauges["unstale_map_file_differs"] > 0 {
		o.Says += ", since it refuses the map's file as it is now, or cannot read it: unstale map check"
	}
	return o
}

// readGauges returns what a worker reports in its gauges, or nil.
func readGauges(w Worker) map[string]float64 {
	registry := prometheus.NewRegistry()
	if registry.Register(w.Metrics()) != nil {
		return nil
	}
	families, err := registry.Gather()
	if err != nil {
		return nil
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	return sums
}

// verdict returns the overall status of a page without an account: one worker does not know it.
func (o *own) verdict() status.Verdict {
	what := "this page has no account of MySQL"
	if o != nil {
		what += "; the worker of this process " + o.Says
	}
	return status.Verdict{Level: status.Unknown, At: time.Now().UTC(), Causes: []status.Cause{{
		Name: "no_account", Level: status.Unknown, What: what, Cure: "set --console-dsn to an operator's account: docs/console.md",
	}}}
}

// gauges are the figures that a worker knows, by metric.
var gauges = []struct {
	metric string
	figure figure
	time   bool
}{
	{"unstale_rows_waiting", figure{ID: "waiting", Label: "Waiting", Unit: "rows"}, false},
	{"unstale_oldest_age_seconds", figure{ID: "oldest", Label: "Oldest waits"}, true},
	{"unstale_rows_delayed", figure{ID: "delayed-rows", Label: "Delayed", Unit: "rows"}, false},
	{"unstale_rows_dead", figure{ID: "dead-letters", Label: "Dead letters", Unit: "rows"}, false},
	{"unstale_sweeps_waiting", figure{ID: "waiting-sweeps", Label: "Sweeps", Unit: "requests"}, false},
}

// figures returns the gauges that a worker reads every ten seconds.
func (o *own) figures() (list []figure) {
	if o == nil || o.gauges == nil {
		return nil
	}
	for _, g := range gauges {
		n, known := o.gauges[g.metric]
		f := g.figure
		f.Note = "as this worker knows it"
		switch {
		case !known || math.IsNaN(n):
			f.Value, f.Unit = "unknown", ""
		case g.time:
			f.Value, f.Unit = cutSpan(time.Duration(n * float64(time.Second)))
		default:
			f.Value = output.Count(int64(n))
		}
		list = append(list, f)
	}
	return list
}
