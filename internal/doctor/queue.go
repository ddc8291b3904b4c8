package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// stuckAge is the age of a waiting row from which a backlog is critical.
const stuckAge = time.Minute

// queue reports the same as `unstale status`: waiting rows, since when, and why.
func queue(ctx context.Context, e *Exam) (all []Finding, err error) {
	s, v, err := e.looker().LookTwice(ctx)
	switch {
	case mysqlerr.Number(err) == mysqlerr.LockTimeout:
		return []Finding{found(Critical, "a table of the outbox is locked, so nobody can read what waits, and workers cannot carry it", err.Error(),
			"see the check named transactions, which needs --audit-mysql-dsn, for the session that keeps it; look for ALTER TABLE, LOCK TABLES and backups")}, nil
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		return []Finding{found(Warning, "what waits could not be read", err.Error(), cmp.Or(session.Fix(err), "what the error names, or see the checks named schema and mysql-rights"))}, nil
	case err != nil:
		return nil, err
	}
	last := "no batch is in the journal"
	if b := s.LastBatch; b != nil {
		last = fmt.Sprintf("the last batch was settled by worker %s at %s", b.Worker, b.SettledAt.Format(time.RFC3339))
	}
	evidence := fmt.Sprintf("%s, the first for %s; %s", exact(s.Waiting, "row"), s.OldestAge.Round(time.Second), last)
	if s.Sweeps > 0 {
		evidence += fmt.Sprintf("\n%s of patterns or index sets, the first not yet carried out for %s", exact(s.Sweeps, "sweep"), s.UnsweptFor.Round(time.Second))
	}
	silent := silentWorkers(s.Workers)
	for _, w := range silent {
		evidence += "\n" + heard(w)
	}
	for _, c := range v.Causes {
		all = append(all, found(severityOf(c, s), c.What, evidence, cmp.Or(c.Cure, "what the error names; docs/operations.md#outages")))
	}
	for _, w := range silent {
		all = append(all, found(Warning, "a worker has fallen silent: it is frozen, was killed, or does not reach MySQL", heard(w),
			"look at its process and its log; a signal that stops it, such as SIGTERM, has it say goodbye"))
	}
	if v.Level == status.Fresh {
		all = append(all, well("%s; %s", v, last))
	}
	return all, nil
}

// severityOf maps a cause of the overall status to a severity: by its level, unless the cause is
// known to be less severe than that.
func severityOf(c status.Cause, s store.Status) Severity {
	switch c.Name {
	case "paused", "healing", "delayed", "dead", "journal_damaged", "replay_broken", "sweeps_refused", "worker_outage", "sweeps":
		return Warning
	case "outage":
		if c.Level != status.Stale {
			return Warning
		}
	case "backlog":
		if max(s.OldestAge, s.Overdue) <= stuckAge {
			return Warning
		}
	}
	return map[status.Level]Severity{status.Fresh: Info, status.Unknown: Unknown, status.Stale: Critical}[c.Level]
}

// silentWorkers returns workers with a recent record that neither run nor have stopped cleanly.
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

// exact returns a count that store.Status may have cut.
func exact(n int, singular string, plural ...string) string {
	if n > store.MaxExactCount {
		return "more than " + count(store.MaxExactCount, singular, plural...)
	}
	return count(n, singular, plural...)
}

// recently is the maximum age of a batch that shows the current work of workers.
const recently = 10 * time.Minute

// runningMap compares the map with the map of the last batch.
func runningMap(ctx context.Context, e *Exam) ([]Finding, error) {
	s, _, err := e.looker().Look(ctx)
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

// runningMaps returns the findings about the maps of running workers, or nothing if none runs.
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
