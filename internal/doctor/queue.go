package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/verdict"
)

const (
	oldAge   = 5 * time.Second // of a row that waits; a worker takes milliseconds
	stuckAge = time.Minute
	aheadAge = time.Second // of created_at, where an application's clock writes it
)

// queue says what waits, and since when nobody has carried anything.
func queue(ctx context.Context, e *Exam) (all []Finding, err error) {
	s, v, err := e.look(ctx)
	switch {
	case mysqlerr.Number(err) == mysqlerr.LockTimeout:
		return []Finding{found(Critical, "a table of the outbox is locked, so nobody can read what waits, and workers cannot carry it", err.Error(),
			"see the check named transactions, which needs --audit-mysql-dsn, for the session that keeps it; look for ALTER TABLE, LOCK TABLES and backups")}, nil
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		return []Finding{found(Warning, "what waits could not be read", err.Error(), cmp.Or(store.Fix(err), "what the error names, or see the checks named schema and mysql-rights"))}, nil
	case err != nil:
		return nil, err
	}
	last := "no batch is in the journal"
	if b := s.LastBatch; b != nil {
		last = fmt.Sprintf("the last batch was settled by worker %s at %s", b.Worker, b.SettledAt.Format(time.RFC3339))
	}
	add := func(s Severity, title, evidence, cure string) { all = append(all, found(s, title, evidence, cure)) }
	silent := silentWorkers(s.Workers)
	waits := fmt.Sprintf("%s, the first for %s; %s", exact(s.Waiting, "row"), s.OldestAge.Round(time.Second), last)
	for _, w := range silent {
		waits += "\n" + heard(w)
	}
	if s.Pause != nil {
		add(Warning, "all workers are paused", s.Pause.String(), "unstale resume")
	}
	all = append(all, waiting(v, s, waits)...)
	if err := s.WorkersError; err != nil {
		all = append(all, unseen("whether workers run", err, "GRANT SELECT ON cache_outbox_workers to the account of --mysql-dsn"))
	}
	for _, w := range silent {
		add(Warning, "a worker has fallen silent: it is frozen, was killed, or does not reach MySQL", heard(w), "look at its process and its log; a signal that stops it, such as SIGTERM, has it say goodbye")
	}
	if a := s.Ahead; a != nil && -a.Age > aheadAge {
		add(Unknown, "how long rows wait, since a row says that it was created later than now", fmt.Sprintf("created_at of row %d lies %s ahead of the database's clock; %s",
			a.ID, -a.Age.Round(time.Second), last), "insert rows without created_at; unstale status looks twice, and tells what does not move")
	}
	if s.Overdue > stuckAge {
		add(Critical, "delayed rows are overdue", "the first has been due for "+s.Overdue.Round(time.Second).String(), "as for rows that wait")
	}
	for _, f := range s.Failing {
		add(Warning, "rows are tried again after a failure, and their keys are stale meanwhile", fmt.Sprintf("%s: %s, the oldest of %s ago, such as: %s",
			f.Reason, exact(f.N, "row"), f.Age.Round(time.Second), f.Error), "unstale delayed list --reason "+f.Reason)
	}
	if s.UnsweptFor > stuckAge {
		add(Warning, "sweeps wait, so keys of patterns and index sets stay stale", fmt.Sprintf("%s in all, the first not yet carried out for %s",
			exact(s.Sweeps, "request"), s.UnsweptFor.Round(time.Second)), "see sweeping in unstale status; docs/operations.md, Sweeps")
	}
	if f := s.SweepFailure; f != nil {
		add(Critical, "all sweeps fail", fmt.Sprintf("worker %s: %s", f.Worker, f.Error), "what the error names")
	}
	if s.SweepsRefused > 0 {
		add(Warning, "Redis refuses sweeps", fmt.Sprintf("%s, the last: %s", exact(s.SweepsRefused, "request"), s.SweepError), "docs/operations.md, Sweeps")
	}
	if len(s.Dead) > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(s.Dead)) {
			reasons = append(reasons, fmt.Sprintf("%s: %d", reason, s.Dead[reason]))
		}
		add(Warning, "there are dead letters, whose keys may be stale", strings.Join(reasons, ", "), "unstale dead list")
	}
	if s.Damaged > 0 {
		add(Warning, "batches of the journal are damaged, and nobody can unlink them again", exact(s.Damaged, "damaged batch", "damaged batches"), "docs/redis.md, A damaged batch")
	}
	if len(all) == 0 {
		all = append(all, well("nothing waits that should not; %s", last))
	}
	return all, nil
}

// waiting turns what `unstale status` says of rows that wait into findings: which workers are kept from
// working, and why, also if nothing waits yet.
func waiting(v verdict.Verdict, s store.Status, evidence string) (all []Finding) {
	for _, c := range v.Causes {
		severity := Critical
		switch c.Name {
		case "outage", "worker_outage":
			if c.Level != verdict.Stale {
				severity = Warning
			}
		case "backlog":
			switch late := max(s.OldestAge, s.Overdue); {
			case late <= oldAge:
				continue
			case late <= stuckAge:
				severity = Warning
			}
		case "no_worker", "no_work_yet", "locked", "locked_delayed", "read_only":
			if c.Level != verdict.Stale {
				continue
			}
		default:
			continue
		}
		all = append(all, found(severity, c.What, evidence, cmp.Or(c.Cure, "what the error names; docs/operations.md#outages")))
	}
	return all
}

// silentWorkers are those that were heard of late and neither live nor have said goodbye.
func silentWorkers(all []store.WorkerNote) (silent []store.WorkerNote) {
	for _, w := range all {
		if !w.Lives() && w.State != store.WorkerStopped && w.Silent < recently {
			silent = append(silent, w)
		}
	}
	return silent
}

func heard(w store.WorkerNote) string {
	return fmt.Sprintf("worker %s was last heard %s ago, %s", w.Name, w.Silent.Round(time.Second), w.State)
}

// exact is a count that store.Status may have cut.
func exact(n int, singular string, plural ...string) string {
	if n > store.MaxExactCount {
		return "more than " + count(store.MaxExactCount, singular, plural...)
	}
	return count(n, singular, plural...)
}

// recently is how old a batch may be to tell what workers do now.
const recently = 10 * time.Minute

// runningMap compares the map with that of the last batch.
func runningMap(ctx context.Context, e *Exam) ([]Finding, error) {
	s, err := e.status(ctx)
	if err != nil {
		return nil, err
	}
	if all := runningMaps(e.Map.Version(), s.Workers); len(all) > 0 {
		return all, nil
	}
	b := s.LastBatch
	if b == nil {
		return []Finding{found(Unknown, "which map workers use", "no worker runs, and no batch is in the journal", "")}, nil
	}
	evidence := fmt.Sprintf("worker %s settled batch %d at %s with map %s, this one is %s",
		b.Worker, b.ID, b.SettledAt.Format(time.RFC3339), b.MapVersion, e.Map.Version())
	if b.MapVersion == e.Map.Version() {
		return []Finding{well("the last batch was carried with this map, %s", b.MapVersion)}, nil
	}
	return []Finding{found(Warning, "the last batch was carried with another map: a worker has refused this one, reads another file or other variables, or has not carried anything since",
		evidence, "look for 'the new map is refused' in the workers' logs, and compare 'map_version' there")}, nil
}

// runningMaps is what the workers that live say of theirs, nothing if none does.
func runningMaps(version string, workers []store.WorkerNote) (all []Finding) {
	same := 0
	for _, w := range workers {
		switch {
		case !w.Lives():
		case w.MapError != "":
			all = append(all, found(Warning, "a worker refuses the map's file as it is now, and uses the one before", fmt.Sprintf("worker %s uses map %s, this one is %s: %s", w.Name, w.MapVersion, version, w.MapError),
				"unstale map check, with the file and the variables of that worker"))
		case w.MapVersion != version:
			all = append(all, found(Warning, "a worker uses another map: it reads another file or other variables", fmt.Sprintf("worker %s uses map %s, this one is %s", w.Name, w.MapVersion, version),
				"compare its --map and the variables that the map names with these; SIGHUP has it read the file again"))
		default:
			same++
		}
	}
	if len(all) == 0 && same > 0 {
		all = append(all, well("this map, %s, is that of %s", version, count(same, "worker")))
	}
	return all
}
