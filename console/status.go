package console

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

const (
	statusEvery = 7 * time.Second // some 37 statements
	statusLimit = 6 * time.Second // with a second look, and with Redis
	// shownWorkers is how many workers are listed.
	shownWorkers = 50
)

// A state is the data of the status source, which several panels show.
type state struct {
	Verdict status.Verdict
	Status  *store.Status // nil: not known; with an error, the latest one
	At      time.Time     // of Status
	Workers []liveWorker
	Gone    int // workers of the last day that are not in Workers
	Own     *own
	Lost    bool // MySQL cannot be read, so Workers are those in Redis
}

// statusSource reads what `unstale status` shows.
func (c *Console) statusSource() *source {
	s := &source{every: statusEvery, limit: statusLimit}
	if c.db == nil {
		s.read = func(context.Context) (any, error) {
			own := c.own()
			return state{Own: own, Verdict: own.verdict()}, errNoAccount
		}
		return s
	}
	looker, looked, last := status.New(c.db, c.redis), false, state{}
	s.read = func(ctx context.Context) (any, error) {
		look := looker.LookTwice
		if looked {
			look = looker.Look
		}
		st, v, err := look(ctx)
		if looked = err == nil; looked {
			last = state{Status: &st, At: time.Now()}
		} else {
			v = status.Unread(err)
		}
		out := state{Own: c.own(), Verdict: v, Status: last.Status, At: last.At, Lost: err != nil}
		for _, w := range st.Workers {
			if w.Lives() && len(out.Workers) < shownWorkers {
				out.Workers = append(out.Workers, liveWorker{w})
			} else {
				out.Gone++
			}
		}
		return out, err
	}
	return s
}

// shownIn has the panel that shows more about a cause.
var shownIn = map[string]string{
	"dead": "dead", "delayed": "delayed", "locked_delayed": "delayed", "differs": "found", "stale_entries": "found",
	"backlog": "charts", "sweeps": "sweeps", "sweeps_fail": "sweeps", "sweeps_refused": "sweeps",
	"no_worker": "workers", "no_work_yet": "workers", "outage": "workers", "worker_outage": "workers", "healing": "workers",
	"map_refused": "workers", "maps_differ": "workers", "map_deprecated": "workers", "not_checked": "workers", "not_counted": "workers",
	"paused": "audit", "replay": "audit", "replay_broken": "audit",
}

// A line describes the overall status, or one cause.
type line struct{ Text, Panel string }

// Lines returns the overall status, and then the other causes.
func (s state) Lines() []line {
	list, rest := []line{{Text: s.Verdict.String()}}, s.Verdict.Causes
	if s.Verdict.Level != status.Fresh {
		list[0].Panel, rest = shownIn[rest[0].Name], rest[1:]
	}
	for i, text := range s.Verdict.Others() {
		list = append(list, line{text, shownIn[rest[i].Name]})
	}
	return list
}

// A Figure is one number of the panel "figures".
type figure struct {
	ID, Label, Value, Unit, Note string
	Level                        string // "", warn or bad
}

// Figures returns the numbers of a state.
func (s state) Figures() []figure {
	if s.Status == nil {
		return s.Own.figures()
	}
	st := s.Status
	waiting := figure{ID: "waiting", Label: "Waiting", Value: upTo(st.Waiting), Unit: unit(st.Waiting, "row")}
	oldest := figure{ID: "oldest", Label: "Oldest waits", Value: "0", Unit: "s", Note: "no row waits"}
	if st.Waiting > 0 {
		oldest.Value, oldest.Unit = cutSpan(st.OldestAge)
		oldest.Note = "since its insert"
		if st.Ahead != nil {
			oldest.Note = "some rows have a created_at in the future"
		}
	}
	if st.OldestAge > 10*time.Second {
		oldest.Level = "warn"
	}
	delayed := figure{ID: "delayed-rows", Label: "Delayed", Value: upTo(st.Delayed), Unit: unit(st.Delayed, "row")}
	if st.Overdue > time.Second {
		delayed.Note, delayed.Level = "the first is due for "+output.Span(st.Overdue), "warn"
	}
	dead := st.DeadTotal()
	letters := figure{ID: "dead-letters", Label: "Dead letters", Value: output.Count(dead), Unit: unit(dead, "row")}
	if dead > 0 {
		letters.Level, letters.Note = "bad", "the oldest died "+output.Span(st.DeadFor)+" ago"
	}
	sweeps := figure{ID: "waiting-sweeps", Label: "Sweeps", Value: upTo(st.Sweeps), Unit: unit(st.Sweeps, "request")}
	if st.Settling > 0 {
		sweeps.Note = upTo(st.Settling) + " wait for the second sweep"
	}
	return []figure{waiting, oldest, delayed, letters, sweeps}
}

// cutSpan returns a duration as a number and its unit.
func cutSpan(d time.Duration) (value, unit string) {
	value, unit, _ = strings.Cut(output.Span(d), " ")
	return value, unit
}

// unit returns the name of n things.
func unit(n int, name string) string {
	if n == 1 {
		return name
	}
	return name + "s"
}

// upTo formats a count that is exact to store.MaxExactCount.
func upTo(n int) string {
	if n > store.MaxExactCount {
		return "> " + output.Count(store.MaxExactCount)
	}
	return output.Count(n)
}

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

// A liveWorker is one row of the panel "workers".
type liveWorker struct{ store.WorkerNote }

// Problems returns what is wrong with a worker, a line each.
func (w liveWorker) Problems() (list []string) {
	for _, p := range []struct{ what, text string }{
		{"", w.Error}, {"rows make no progress: ", w.StallError},
		{"the map's file is refused: ", w.MapError}, {"the next release refuses the map: ", w.MapWarning},
	} {
		if line, _, _ := strings.Cut(p.text, "\n"); line != "" {
			list = append(list, p.what+line)
		}
	}
	return list
}
