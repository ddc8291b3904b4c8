package console

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/verdict"
)

// An own is the state of the worker of this process, which is known without MySQL.
type own struct {
	MapVersion string
	Alive      error
	Ready      error
	worker     Worker
}

// own returns nil if this process has no worker.
func (c *Console) own() *own {
	w := c.cfg.Worker
	if w == nil {
		return nil
	}
	return &own{w.Map().Version(), w.Alive(), w.Ready(), w}
}

// verdict returns the overall status of a page without an account: one worker does not know it.
func (o *own) verdict() verdict.Verdict {
	what := "this page has no account of MySQL"
	switch {
	case o == nil:
	case o.Alive != nil:
		what += "; the worker of this process is stuck: " + o.Alive.Error()
	case o.Ready != nil:
		what += "; the worker of this process does not work: " + o.Ready.Error()
	default:
		what += "; the worker of this process works"
	}
	return verdict.Verdict{Level: verdict.Unknown, At: time.Now().UTC(), Causes: []verdict.Cause{{
		Name: "no_account", Level: verdict.Unknown, What: what, Cure: "set --console-dsn to an operator's account: docs/console.md",
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
	if o == nil {
		return nil
	}
	registry := prometheus.NewRegistry()
	if registry.Register(o.worker.Metrics()) != nil {
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
	for _, g := range gauges {
		n, known := sums[g.metric]
		f := g.figure
		f.Note = "as this worker knows it"
		switch {
		case !known || math.IsNaN(n):
			f.Value, f.Unit = "unknown", ""
		case g.time:
			f.Value, f.Unit = cutSpan(time.Duration(n * float64(time.Second)))
		default:
			f.Value = count(int64(n))
		}
		list = append(list, f)
	}
	return list
}
