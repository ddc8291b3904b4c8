package verdict

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A judge looks at one Status.
type judge struct {
	s      store.Status
	before *store.Status
}

// causes lists all causes. First what keeps every row waiting, then what keeps some.
func (j judge) causes() (list []Cause) {
	for _, look := range []func(judge) []Cause{
		judge.ids, judge.pause, judge.readOnly, judge.conflicts, judge.workers, judge.healing, judge.locked, judge.backlog, judge.sweeps, judge.delayed, judge.dead,
		judge.damaged, judge.replay, judge.maps, judge.deprecated, judge.shards, judge.ahead,
	} {
		list = append(list, look(j)...)
	}
	return list
}

// ago is a moment by the database's clock, none for an age of 0, which nobody knows.
func (j judge) ago(age time.Duration) time.Time {
	if age <= 0 {
		return time.Time{}
	}
	return j.s.At.Add(-age)
}

// waiting reports whether anything waits for a worker, and since when.
func (j judge) waiting() (age time.Duration, waits bool) {
	return max(j.oldest(), j.s.Overdue, j.s.UnsweptFor), j.s.Waiting > 0 || j.s.Overdue > 0 || j.s.Unswept
}

// some lists the workers of which a condition holds.
func (j judge) some(is func(*store.WorkerNote) bool) (list []store.WorkerNote) {
	for i := range j.s.Workers {
		if is(&j.s.Workers[i]) {
			list = append(list, j.s.Workers[i])
		}
	}
	return list
}

func (j judge) works() bool { return len(j.some((*store.WorkerNote).Works)) > 0 }

// general is a cause that keeps everything waiting: something is stale once something waits. Otherwise nobody looks
// whether Redis still has what was unlinked.
func (j judge) general(name string, began time.Time, what, cure string) Cause {
	if age, waits := j.waiting(); waits {
		return Cause{name, Stale, j.ago(age), what + "; " + j.what(), cure}
	}
	return Cause{name, Unknown, began, what + "; nothing waits, but nobody looks whether Redis has lost anything", cure}
}

// what says what waits.
func (j judge) what() string {
	var parts []string
	if j.s.Waiting > 0 {
		parts = append(parts, count(j.s.Waiting, "row"))
	}
	if j.s.Overdue > 0 {
		parts = append(parts, "delayed rows that are due")
	}
	if j.s.Unswept {
		parts = append(parts, count(max(j.s.Sweeps-j.s.Settling, 1), "sweep"))
	}
	if len(parts) == 1 && strings.HasPrefix(parts[0], "1 ") {
		return parts[0] + " waits"
	}
	return strings.Join(parts, " and ") + " wait"
}

func (j judge) pause() []Cause {
	p := j.s.Pause
	if p == nil {
		return nil
	}
	what := "all workers are paused by " + p.Who
	if p.EndsAt != nil {
		what += " until " + clock(*p.EndsAt, j.s.At)
	}
	if p.Reason != "" {
		what += " (" + firstLine(p.Reason) + ")"
	}
	if p.Unrecorded {
		what += ", of which the audit has no record: anybody may have written that name"
	}
	return []Cause{j.general("paused", p.BeganAt, what, "to go on: unstale resume")}
}

// readOnly: workers cannot settle rows. Where nothing waits for long it may be a replica that is asked.
func (j judge) readOnly() []Cause {
	age, waits := j.waiting()
	if !j.s.ReadOnly || !waits || age <= grace {
		return nil
	}
	return []Cause{{"read_only", Stale, j.ago(age), "MySQL is read-only, so workers cannot settle what they unlink; " + j.what(),
		"SET GLOBAL super_read_only = 0 and read_only = 0 if it is the primary; else ask the primary"}}
}

// workers: none lives, or none of those that live works.
func (j judge) workers() []Cause {
	if err := j.s.WorkersError; err != nil {
		return []Cause{{"workers_unread", Unknown, time.Time{}, "whether a worker runs cannot be read", firstLine(err.Error())}}
	}
	lives := j.some((*store.WorkerNote).Lives)
	switch {
	case len(lives) == 0:
		return []Cause{j.noWorker()}
	case j.works():
		var notes []Cause
		for _, w := range j.some(inOutage) {
			notes = append(notes, Cause{"worker_outage", Fresh, j.ago(w.For), j.outage(w), ""})
		}
		return notes
	}
	if outages := j.some(inOutage); len(outages) > 0 {
		w := outages[0]
		return []Cause{j.general("outage", j.ago(w.For), j.outage(w), "the workers go on by themselves once that is cured: docs/operations.md#outages")}
	}
	if w := lives[0]; j.s.Pause == nil && w.State != store.WorkerHealing {
		return []Cause{j.general("no_work_yet", j.ago(w.For), "no worker works at the moment, "+w.Name+" is "+w.State, "wait a moment")}
	}
	return nil
}

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

func (j judge) outage(w store.WorkerNote) string {
	return fmt.Sprintf("worker %s is kept from working (%s): %s", w.Name, w.State, firstLine(w.Error))
}

func (j judge) noWorker() Cause {
	cure := "start one: unstale run"
	if !j.s.AskedRedis || j.s.RedisError != nil {
		cure = "if none runs, " + cure + "; --redis-url also shows workers whose status MySQL refuses"
	}
	if len(j.s.Workers) == 0 {
		return j.general("no_worker", time.Time{}, "no worker has been heard within a day", cure)
	}
	last := j.s.Workers[0]
	what := fmt.Sprintf("no worker has been heard for %s, the last was %s", short(last.Silent), last.Name)
	if last.Silent < 0 {
		what = "no worker has been heard since the database's clock was set back, the last was " + last.Name
	}
	if last.State == store.WorkerStopped {
		what += ", which was stopped"
	}
	return j.general("no_worker", j.ago(last.Silent), what, cure)
}

func (j judge) healing() []Cause {
	healing := j.some(isIn(store.WorkerHealing))
	if len(healing) == 0 {
		return nil
	}
	return []Cause{{"healing", Stale, j.ago(healing[0].For), "Redis has lost what was unlinked, and worker " + healing[0].Name + " unlinks it again", "wait; its log says how far it is"}}
}

func (j judge) backlog() []Cause {
	late := time.Duration(0)
	if !j.lockedFirst() {
		late = j.oldest()
	}
	if !j.lockedDue() {
		late = max(late, j.s.Overdue)
	}
	if !j.works() || j.s.Pause != nil || j.s.ReadOnly || late <= grace {
		return nil
	}
	return []Cause{{"backlog", Stale, j.ago(late), j.what() + ", and workers are behind", "wait, or start more workers: docs/operations.md#what-waits"}}
}

func (j judge) sweeps() (list []Cause) {
	s := j.s
	if f := s.SweepFailure; f != nil && s.Unswept {
		list = append(list, Cause{"sweeps_fail", Stale, j.ago(s.UnsweptFor), "sweeps wait, and all fail in worker " + f.Worker + ": " + firstLine(f.Error), "docs/operations.md#sweeps"})
	}
	if s.SweepsRefused > 0 {
		list = append(list, Cause{"sweeps_refused", Stale, j.ago(s.UnsweptFor), "Redis refuses " + count(s.SweepsRefused, "sweep") + ", the last: " + firstLine(s.SweepError), "docs/operations.md#sweeps"})
	}
	if len(list) == 0 && s.Unswept && s.UnsweptFor <= 0 {
		return []Cause{{"sweeps", Unknown, time.Time{}, j.sweepsWait() + ", and since when is unknown: the database's clock was set back", "wait; unstale doctor --check clocks"}}
	}
	if len(list) > 0 || s.UnsweptFor <= grace || !j.works() {
		return list
	}
	what, cure := j.sweepsWait(), "wait; see sweeping below"
	if s.Scan == nil && s.Sets == nil {
		cure = "wait; if it lasts: docs/operations.md#sweeps"
	}
	return []Cause{{"sweeps", Stale, j.ago(s.UnsweptFor), what, cure}}
}

func (j judge) sweepsWait() string {
	return count(max(j.s.Sweeps-j.s.Settling, 1), "sweep") + " of patterns or index sets not yet carried out"
}

func (j judge) delayed() (list []Cause) {
	for _, f := range j.s.Failing {
		what := fmt.Sprintf("tried again after a failure (%s): %s", f.Reason, count(f.N, "row"))
		if f.Error != "" {
			what += ", " + firstLine(f.Error)
		}
		list = append(list, Cause{"delayed", Stale, j.ago(f.Age), what, "see: unstale delayed list --reason " + f.Reason})
	}
	return list
}

func (j judge) dead() []Cause {
	total, reasons := 0, []string{}
	for reason, n := range j.s.Dead {
		total += n
		reasons = append(reasons, fmt.Sprintf("%s: %d", reason, n))
	}
	if total == 0 {
		return nil
	}
	sort.Strings(reasons)
	return []Cause{{"dead", Stale, j.ago(j.s.DeadFor), count(total, "dead letter") + " (" + strings.Join(reasons, ", ") + "), whose keys may be stale" + j.partly(), "see: unstale dead list"}}
}

// partly says where to read how much was applied of dead letters whose lookup failed.
func (j judge) partly() string {
	if j.s.Dead["lookup_failed"] == 0 {
		return ""
	}
	return "; where a lookup failed, the dead letter says what was applied without it"
}

func (j judge) damaged() []Cause {
	if j.s.Damaged == 0 {
		return nil
	}
	return []Cause{{"journal_damaged", Unknown, time.Time{}, "batches of the journal that nobody can unlink again: " + fmt.Sprint(j.s.Damaged), "docs/redis.md#a-damaged-batch"}}
}

func (j judge) replay() []Cause {
	if r := j.s.BrokenReplay; r != nil {
		return []Cause{{"replay_broken", Unknown, r.At, "the replay of " + r.ClaimedBy + " did not come to its end, and what it has not come to may be stale", "run it again: unstale audit list --action replay shows with what"}}
	}
	p := j.s.Replay
	if p == nil {
		return nil
	}
	return []Cause{{"replay", Unknown, p.BeganAt, p.Who + " replays the journal, and what it has not come to may be stale (" + p.Reason + ")", "wait"}}
}

func (j judge) maps() (list []Cause) {
	versions := map[string]bool{}
	for _, w := range j.some((*store.WorkerNote).Lives) {
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

// deprecated: the next release refuses the map. Workers share it, so one note is enough.
func (j judge) deprecated() []Cause {
	for _, w := range j.some((*store.WorkerNote).Lives) {
		if w.MapWarning != "" {
			return []Cause{{"map_deprecated", Fresh, time.Time{},
				fmt.Sprintf("worker %s uses a map that the next release refuses: %s", w.Name, firstLine(w.MapWarning)), "unstale map check"}}
		}
	}
	return nil
}

// shards: a part of a Redis Cluster is away, whose keys nobody can look after.
func (j judge) shards() (list []Cause) {
	for _, w := range j.some((*store.WorkerNote).Works) {
		if w.Error != "" {
			return []Cause{{"redis_part_away", Unknown, time.Time{}, "worker " + w.Name + ": " + firstLine(w.Error), "docs/operations.md#outages"}}
		}
	}
	return nil
}
