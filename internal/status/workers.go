package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// A fleet is the status records of all workers of the last day.
type fleet []store.WorkerNote

func (j judge) fleet() fleet { return j.s.Workers }

// some lists the workers that match a condition.
func (f fleet) some(is func(*store.WorkerNote) bool) (list fleet) {
	for i := range f {
		if is(&f[i]) {
			list = append(list, f[i])
		}
	}
	return list
}

func (f fleet) works() bool { return len(f.some((*store.WorkerNote).Works)) > 0 }

func isIn(state string) func(*store.WorkerNote) bool {
	return func(w *store.WorkerNote) bool { return w.Lives() && w.State == state }
}

func inOutage(w *store.WorkerNote) bool {
	switch w.State {
	case store.WorkerWorking, store.WorkerStarting, store.WorkerHealing, store.WorkerPaused, store.WorkerStopped:
		return false
	}
	return w.Lives()
}

// heavy lists the workers that have heavy rows to process. These rows may wait, and take longer
// than a batch of light rows.
func (f fleet) heavy() []store.WorkerNote {
	return f.some(func(w *store.WorkerNote) bool { return w.Works() && w.Heavy != nil })
}

// drained reports whether a worker has found no more rows to claim since the oldest row was first
// seen, or shortly before that; then its next record shows it.
func (f fleet) drained() bool {
	return len(f.some(func(w *store.WorkerNote) bool { return w.Works() && w.Drained != nil && *w.Drained < lockedFor })) > 0
}

func (f fleet) maps() (list []Cause) {
	versions := map[string]bool{}
	for _, w := range f.some((*store.WorkerNote).Lives) {
		versions[w.MapVersion] = true
		if w.MapError != "" {
			list = append(list, Cause{"map_refused", Unknown, time.Time{},
				fmt.Sprintf("worker %s refuses the map's file as it is now and works with version %s, so what the new one adds is not unlinked: %s", w.Name, w.MapVersion, firstLine(w.MapError)),
				"unstale map check"})
		}
	}
	if len(list) == 0 && len(versions) > 1 {
		list = append(list, Cause{"maps_differ", Unknown, time.Time{},
			fmt.Sprintf("workers work with %d versions of the map, and keys that only one of them names may be stale", len(versions)),
			"wait while it is being deployed; else give all workers one file: unstale doctor --check running-map"})
	}
	return list
}

// deprecated: the next release refuses the map. Workers share it, so one cause is enough.
func (f fleet) deprecated() []Cause {
	for _, w := range f.some((*store.WorkerNote).Lives) {
		if w.MapWarning != "" {
			return []Cause{{"map_deprecated", Fresh, time.Time{},
				fmt.Sprintf("worker %s uses a map that the next release refuses: %s", w.Name, firstLine(w.MapWarning)), "unstale map check"}}
		}
	}
	return nil
}

// readers: the code of a reader was generated from another map than the workers use, so what it
// stores may never be invalidated. One cause is enough.
func (f fleet) readers(all []store.Reader) []Cause {
	known := map[string]bool{}
	for _, w := range f.some((*store.WorkerNote).Lives) {
		if w.Reads != "" {
			known[w.Reads] = true
		}
	}
	var others []store.Reader
	for _, r := range all {
		if len(known) > 0 && slices.ContainsFunc(r.Reads, func(version string) bool { return !known[version] }) {
			others = append(others, r)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []Cause{{"readers_differ", Fresh, time.Time{},
		fmt.Sprintf("%s with code of another map than the workers': %s has the reads %s, the workers have %s", Exact(len(others), "reader"),
			others[0].Process, strings.Join(others[0].Reads, " and "), strings.Join(slices.Sorted(maps.Keys(known)), " and ")),
		"unstale map generate, and deploy the readers; unstale map describe prints the fingerprint"}}
}

// partAway: part of a Redis Cluster is unreachable, so no worker can check its keys, or it may lack
// unlinks.
func (f fleet) partAway() (list []Cause) {
	for _, w := range f.some((*store.WorkerNote).Works) {
		if w.Error != "" && !w.LacksRight() {
			return []Cause{{"redis_part_away", Unknown, time.Time{}, "worker " + w.Name + ": " + firstLine(w.Error), "docs/operations.md#outages"}}
		}
	}
	return nil
}

// lacksRight: a worker does not count its batches, so the shares in time lack them, or does not
// check its entries. Workers have the same privileges, so one cause is enough.
func (f fleet) lacksRight() []Cause {
	for _, w := range f.some((*store.WorkerNote).Works) {
		what := "worker " + w.Name + ": " + firstLine(w.Error)
		switch {
		case strings.HasPrefix(w.Error, store.NotCounted):
			return []Cause{{"not_counted", Fresh, time.Time{}, what, store.Grant}}
		case w.LacksRight():
			if strings.Contains(w.Error, "cache_outbox_") {
				return []Cause{{"not_checked", Fresh, time.Time{}, what, "docs/accounts.md#mysql lists the grants of the worker's account"}}
			}
			return []Cause{{"not_checked", Fresh, time.Time{}, what, "give the worker's user the rules that unstale acl worker prints: docs/accounts.md#redis"}}
		}
	}
	return nil
}

// workers: no worker lives, or none of the live ones works.
func (j judge) workers() []Cause {
	if err := j.s.WorkersError; err != nil {
		return []Cause{{"workers_unread", Unknown, time.Time{}, "whether a worker runs cannot be read", firstLine(err.Error())}}
	}
	lives := j.fleet().some((*store.WorkerNote).Lives)
	switch {
	case len(lives) == 0:
		return []Cause{j.noWorker()}
	case j.fleet().works():
		var notes []Cause
		for _, w := range j.fleet().some(inOutage) {
			notes = append(notes, Cause{"worker_outage", Fresh, j.ago(w.For), j.outage(w), ""})
		}
		return notes
	}
	if outages := j.fleet().some(inOutage); len(outages) > 0 {
		w := outages[0]
		return []Cause{j.general("outage", j.ago(w.For), j.outage(w), "the workers continue automatically once that is fixed: docs/operations.md#outages")}
	}
	if w := lives[0]; j.s.Pause == nil {
		return []Cause{j.general("no_work_yet", j.ago(w.For), "no worker works at the moment, "+w.Name+" is "+w.State, "wait a moment")}
	}
	return nil
}

func (j judge) outage(w store.WorkerNote) string {
	return fmt.Sprintf("worker %s is kept from working (%s): %s", w.Name, w.State, firstLine(w.Error))
}

func (j judge) noWorker() Cause {
	cure := "start one: unstale run"
	switch {
	case j.s.RedisError != nil:
		cure = "if none runs, " + cure + "; the status that workers publish in Redis cannot be read either: " + firstLine(j.s.RedisError.Error())
	case !j.s.AskedRedis:
		cure = "if none runs, " + cure + "; --redis-url also shows workers whose status MySQL refuses"
	}
	if len(j.s.Workers) == 0 {
		return j.general("no_worker", time.Time{}, "no worker has been heard within a day", cure)
	}
	last := j.s.Workers[0]
	what := fmt.Sprintf("no worker has been heard for %s, the last was %s", output.Short(last.Silent), last.Name)
	if last.Silent < 0 {
		what = "no worker has been heard since the database's clock was set back, the last was " + last.Name
	}
	if last.State == store.WorkerStopped {
		what += ", which was stopped"
	}
	return j.general("no_worker", j.ago(last.Silent), what, cure)
}

// NotReady returns why a worker does not work, by its own record and by the error of its last
// sweep, or nil: what /readyz answers. A pause is on purpose, and no reason to replace a worker.
func NotReady(n store.WorkerNote, sweep error) error {
	switch own := (fleet{n}); {
	case n.State == store.WorkerPaused:
		return nil
	case len(own.some(inOutage)) > 0:
		return errors.New(n.Error)
	case n.State == store.WorkerStarting:
		return errors.New("the first poll is not over")
	case sweep != nil:
		return fmt.Errorf("sweeps fail, rows go on: %w", sweep)
	case n.Stalled != "":
		return errors.New(n.StallError)
	}
	return nil
}
