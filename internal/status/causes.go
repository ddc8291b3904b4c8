package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// A judge evaluates one Status.
type judge struct {
	s      store.Status
	before *store.Status
}

// causes lists all causes: first those that keep every row waiting, then those that keep some.
func (j judge) causes() (list []Cause) {
	return slices.Concat(
		idCauses(j.s.IDsLeft), j.pause(), j.readOnly(), conflictCauses(j.s.Conflicts, j.s.ConflictsError), j.workers(), j.healing(),
		j.locked(), j.backlog(), j.sweeps(), j.delayed(), deadCauses(j.s.Dead, j.ago(j.s.DeadFor)),
		staleCauses(j.s), damagedCauses(j.s.Damaged), replayCauses(j.s.Replay, j.s.BrokenReplay), j.fleet().maps(), j.fleet().deprecated(), j.fleet().readers(j.s.Readers), j.fleet().partAway(), j.fleet().lacksRight(), differenceCauses(j.s), j.ahead(),
	)
}

// ago returns the time, by the database's clock, at which an age began. An age of 0 is unknown, and
// the time is then zero.
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

// general returns a cause that keeps everything waiting. If something waits, it is stale. If not,
// the status is unknown, since no worker checks whether Redis still has all unlinks.
func (j judge) general(name string, began time.Time, what, cure string) Cause {
	if age, waits := j.waiting(); waits {
		return Cause{name, Stale, j.ago(age), what + "; " + j.what(), cure}
	}
	return Cause{name, Unknown, began, what + "; nothing waits, but nobody looks whether Redis has lost anything", cure}
}

// what describes what waits.
func (j judge) what() string {
	var parts []string
	if j.s.Waiting > 0 {
		parts = append(parts, Exact(j.s.Waiting, "row"))
	}
	if j.s.Overdue > 0 {
		parts = append(parts, "delayed rows that are due")
	}
	if j.s.Unswept {
		parts = append(parts, Exact(max(j.s.Sweeps-j.s.Settling, 1), "sweep"))
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

// readOnly: workers cannot settle rows. If nothing waits for long, the queried server may be a
// replica.
func (j judge) readOnly() []Cause {
	age, waits := j.waiting()
	if !j.s.ReadOnly || !waits || age <= grace {
		return nil
	}
	return []Cause{{"read_only", Stale, j.ago(age), "MySQL is read-only, so workers cannot settle what they unlink; " + j.what(),
		"find out which server is the primary; if it is this one: SET GLOBAL read_only = 0; if not, leave it read-only and ask the primary"}}
}

func (j judge) healing() []Cause {
	healing := j.fleet().some(isIn(store.WorkerHealing))
	if len(healing) == 0 {
		return nil
	}
	return []Cause{{"healing", Stale, j.ago(healing[0].For), "Redis went back to older data, so removed keys are there again, and worker " + healing[0].Name + " unlinks them", "wait; its log shows the progress"}}
}

func (j judge) backlog() []Cause {
	late := time.Duration(0)
	if j.held() != nil { // which makes rows old, and not a lack of workers
		return nil
	}
	if !j.lockedFirst() {
		late = j.oldest()
	}
	if !j.lockedDue() {
		late = max(late, j.s.Overdue)
	}
	if !j.fleet().works() || j.s.Pause != nil || j.s.ReadOnly || late <= grace {
		return nil
	}
	if heavy := j.fleet().heavy(); len(heavy) > 0 {
		return []Cause{{"backlog", Stale, j.ago(late), j.what() + ", and worker " + heavy[0].Name + " processes heavy rows, a batch at a time", "wait: docs/operations.md#what-waits"}}
	}
	what, cure := ", and workers are behind", "wait, or start more workers: docs/operations.md#what-waits"
	switch {
	case j.passes() && (sameFirst(j.before, j.s) || j.before != nil && same(j.before.FirstDue, j.s.FirstDue)):
		what, cure = ", and workers find none to claim: it is in a batch, or a session has it locked", "wait, until it is known which"
	case late < 15*time.Second: // a worker reports a locked row after the claim timeout and 2 s
		cure = "wait: docs/operations.md#what-waits"
	}
	return []Cause{{"backlog", Stale, j.ago(late), j.what() + what, cure}}
}

func (j judge) sweeps() (list []Cause) {
	s := j.s
	if f := s.SweepFailure; f != nil && s.Unswept {
		list = append(list, Cause{"sweeps_fail", Stale, j.ago(s.UnsweptFor), "sweeps wait, and all fail in worker " + f.Worker + ": " + firstLine(f.Error), "docs/operations.md#sweeps"})
	}
	if s.SweepsRefused > 0 {
		list = append(list, Cause{"sweeps_refused", Stale, j.ago(s.UnsweptFor), "Redis refuses " + Exact(s.SweepsRefused, "sweep") + ", the last: " + firstLine(s.SweepError), "docs/operations.md#sweeps"})
	}
	if len(list) == 0 && s.Unswept && s.UnsweptFor <= 0 {
		return []Cause{{"sweeps", Unknown, time.Time{}, j.sweepsWait() + ", and since when is unknown: the database's clock was set back", "wait; unstale doctor --check clocks"}}
	}
	if len(list) > 0 || s.UnsweptFor <= grace || !j.fleet().works() {
		return list
	}
	what, cure := j.sweepsWait(), "wait; see sweeping below"
	if s.Scan == nil && s.Sets == nil {
		cure = "wait; if it lasts: docs/operations.md#sweeps"
	}
	return []Cause{{"sweeps", Stale, j.ago(s.UnsweptFor), what, cure}}
}

func (j judge) sweepsWait() string {
	return Exact(max(j.s.Sweeps-j.s.Settling, 1), "sweep") + " of patterns or index sets not yet carried out"
}

func (j judge) delayed() (list []Cause) {
	for _, f := range j.s.Failing {
		what := fmt.Sprintf("tried again after a failure (%s): %s", f.Reason, Exact(f.N, "row"))
		// the error of one row has its own counts, so cut them off
		if cause, _, _ := strings.Cut(f.Error, store.PartMark); cause != "" {
			what += ", " + firstLine(cause)
		}
		if f.Reason == "lookup_failed" {
			what += "; where a lookup failed, the error of each row says what was applied without it"
		}
		cure := "see: unstale delayed list --reason " + f.Reason
		if f.WaitsForClock {
			what, cure = what+"; the database's clock was set back, so their time is far off", "a running worker corrects that within seconds; if none runs: unstale delayed retry --reason "+f.Reason
		}
		list = append(list, Cause{"delayed", Stale, j.ago(f.Age), what, cure})
	}
	return list
}

func deadCauses(dead map[string]int, since time.Time) []Cause {
	total, reasons := 0, []string{}
	for _, reason := range slices.Sorted(maps.Keys(dead)) {
		total += dead[reason]
		reasons = append(reasons, fmt.Sprintf("%s: %d", reason, dead[reason]))
	}
	if total == 0 {
		return nil
	}
	what := Exact(total, "dead letter") + " (" + strings.Join(reasons, ", ") + "), whose keys may be stale"
	if dead["lookup_failed"] > 0 {
		what += "; where a lookup failed, the dead letter says what was applied without it"
	}
	return []Cause{{"dead", Stale, since, what, "see: unstale dead list"}}
}

func damagedCauses(batches int) []Cause {
	if batches == 0 {
		return nil
	}
	return []Cause{{"journal_damaged", Unknown, time.Time{}, "batches of the journal that cannot be unlinked again: " + fmt.Sprint(batches), "docs/redis.md#a-damaged-batch"}}
}

func replayCauses(running *store.Pause, broken *store.AuditRecord) []Cause {
	if r := broken; r != nil {
		return []Cause{{"replay_broken", Unknown, r.At, "the replay of " + r.ClaimedBy + " did not come to its end, and what it has not come to may be stale", "run it again: unstale audit list --action replay shows with what"}}
	}
	p := running
	if p == nil {
		return nil
	}
	return []Cause{{"replay", Unknown, p.BeganAt, p.Who + " replays, and what that has not come to may be stale (" + p.Reason + ")", "wait"}}
}

// staleCauses returns the causes of stale entries that spot checks found. Those that are gone are
// a note for an hour: their writer may store more.
func staleCauses(s store.Status) []Cause {
	const cure = "find what stores them: docs/operations.md#a-stale-entry"
	n := s.StaleEntries
	found := "spot checks found 1 stale entry within an hour, which is gone"
	if n.Hour > 1 {
		found = fmt.Sprintf("spot checks found %d stale entries within an hour, which are gone", n.Hour)
	}
	switch present, unread := are(s.Left, store.Present), are(s.Left, store.Unread); {
	case s.StaleEntriesError != nil:
		return []Cause{{"stale_entries_unread", Fresh, time.Time{}, "the stale entries that spot checks found cannot be read: " + firstLine(s.StaleEntriesError.Error()), "docs/accounts.md#mysql"}}
	case len(present) > 0:
		return []Cause{{"stale_entries", Stale, since(present), "the entry of " + first(present) + " survived an UNLINK and is still in Redis" + others(present), cure}}
	case len(unread) > 0:
		return []Cause{{"stale_entries", Stale, since(unread), "the entry of " + first(unread) + " survived an UNLINK and may be in Redis until its TTL ends" + others(unread), cure}}
	case n.Hour > 0:
		return []Cause{{"stale_entries", Fresh, time.Time{}, found, cure}}
	}
	return nil
}

// differenceCauses returns the causes of cached values that shadow reads found to differ although no row
// explains it. Those that are gone are a note for 24 hours.
func differenceCauses(s store.Status) []Cause {
	const cure = "unstale map who KEY; docs/operations.md#differences"
	found := s.Differences
	if err := s.OldEntriesError; err != nil && len(found) == 0 {
		return []Cause{{"differences_unread", Fresh, time.Time{}, "cached values that differ from the database cannot be read: " + firstLine(err.Error()), "docs/accounts.md"}}
	}
	if len(found) == 0 {
		return nil
	}
	switch present, unread := are(found, store.Present), are(found, store.Unread); {
	case len(present) > 0:
		return []Cause{{"differs", Stale, since(present), "the cached value of " + first(present) + " differs from the database, and no row explains it" + others(present), cure}}
	case len(unread) > 0 && s.OldEntriesError != nil:
		return []Cause{{"differs", Unknown, since(unread), "whether Redis still has values that differed from the database is unknown: " + firstLine(s.OldEntriesError.Error()), cure}}
	case found[0].Count > 0:
		return []Cause{{"differs", Fresh, time.Time{}, Exact(found[0].Count, "cached value") + " differed from the database in the last 24 hours, the last: " + output.Data(found[0].Key), cure}}
	}
	return nil
}

// are returns the entries with a state.
func are(list []store.OldEntry, p store.EntryState) []store.OldEntry {
	return slices.DeleteFunc(slices.Clone(list), func(e store.OldEntry) bool { return e.State != p })
}

// since returns when the first of the entries was found. The newest come first.
func since(list []store.OldEntry) time.Time { return list[len(list)-1].At }

// first names the key of the entry that was found first, and others counts the others.
func first(list []store.OldEntry) string { return output.Data(list[len(list)-1].Key) }

func others(list []store.OldEntry) string {
	switch n := len(list) - 1; {
	case n == 0:
		return ""
	case len(list) == store.MaxOldEntries:
		return fmt.Sprintf(", and at least %d others too", n)
	default:
		return ", and " + Exact(n, "other") + " too"
	}
}

// renumber is the fix for a table whose IDs run out.
const renumber = "docs/operations.md#ids-that-run-out"

// idCauses: an insert has chosen a high ID, so few or no IDs are left. Writes that fail leave
// nothing stale, but writes that continued without their row are unknown.
func idCauses(idsLeft map[string]uint64) (list []Cause) {
	for _, table := range slices.Sorted(maps.Keys(idsLeft)) {
		switch left := idsLeft[table]; {
		case left == 0:
			list = append(list, Cause{"no_ids_left", Unknown, time.Time{},
				"table " + table + " has no ID left, so every insert into it fails (1467), and the write that the row belongs to fails with it", renumber})
		case left < store.FewIDs:
			list = append(list, Cause{"few_ids_left", Fresh, time.Time{},
				fmt.Sprintf("an insert into table %s has chosen a high ID: %d are left, and then every insert fails", table, left), renumber})
		}
	}
	return list
}

// conflictCauses returns the causes that workers' records in Redis show.
func conflictCauses(conflicts []store.Conflict, unread error) (list []Cause) {
	for _, c := range conflicts {
		name, level := "restored", Stale
		if c.Kind == store.ConflictID {
			name, level = "one_id", Unknown
		}
		list = append(list, Cause{name, level, time.Time{}, c.Text, c.Cure})
	}
	if unread != nil {
		list = append(list, Cause{"conflicts_unread", Fresh, time.Time{},
			"whether other databases share this Redis cannot be read: " + firstLine(unread.Error()), "docs/accounts.md#redis"})
	}
	return list
}
