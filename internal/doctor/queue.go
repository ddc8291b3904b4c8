package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// stuckAge is the age of a waiting row from which a backlog is critical.
const stuckAge = time.Minute

// queue reports the same as `unstale status`: waiting rows, since when, and why.
func queue(ctx context.Context, e *Inputs) (all []Finding, err error) {
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
	evidence := fmt.Sprintf("%s, the first for %s; %s", status.Exact(s.Waiting, "row"), s.OldestAge.Round(time.Second), last)
	if s.Sweeps > 0 {
		evidence += fmt.Sprintf("\n%s of patterns or index sets, the first not yet carried out for %s", status.Exact(s.Sweeps, "sweep"), s.UnsweptFor.Round(time.Second))
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
		all = append(all, ok("%s; %s", v, last))
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
func silentWorkers(all []store.WorkerNote) []store.WorkerNote {
	return slices.DeleteFunc(slices.Clone(all), func(w store.WorkerNote) bool {
		return w.Lives() || w.State == store.WorkerStopped || w.Silent >= recently
	})
}

func heard(w store.WorkerNote) string {
	return fmt.Sprintf("worker %s was last heard %s ago, %s", w.Name, w.Silent.Round(time.Second), w.State)
}

// recently is the maximum age of a batch that shows the current work of workers.
const recently = 10 * time.Minute

// runningMap compares the map with the map of the last batch.
func runningMap(ctx context.Context, e *Inputs) ([]Finding, error) {
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
		return []Finding{ok("the last batch was carried with this map, %s", b.MapVersion)}, nil
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
		all = append(all, ok("this map, %s, is that of %s", version, output.Things(same, "worker")))
	}
	return all
}

// databases reports conflicts of this database with Redis and with other databases there.
func databases(ctx context.Context, e *Inputs) (all []Finding, err error) {
	source, err := e.MySQL.Source(ctx)
	if err != nil {
		return nil, err
	}
	list, known, err := status.Conflicts(ctx, e.Redis.StatusHashes, source)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		title := "the database is older than Redis"
		if c.Kind == store.ConflictID {
			title = "another database has the ID of this one"
		}
		all = append(all, found(Critical, title, c.Text, c.Cure))
	}
	if len(all) == 0 && !known {
		return []Finding{found(Unknown, "whether another database on this Redis has the ID of this one", "no worker publishes which database it serves",
			"start a worker, with the ACL rules of `unstale acl worker`")}, nil
	}
	return orOK(all, "no other database on this Redis has the ID of this one, and this one was not restored"), nil
}

// mostApart is how far clocks may be apart: times in rows are by the database's clock, unlink times
// by the clock of Redis, and operators compare them with logs.
const mostApart = time.Second

// Contract: no table.
const clockSQL = "SELECT UTC_TIMESTAMP(6)"

// clocks compares this host's clock with that of each server, by the middle of the round trip.
func clocks(ctx context.Context, e *Inputs) (all []Finding, err error) {
	if e.reached[aMySQL] == nil {
		all = append(all, clock(ctx, "MySQL", func(ctx context.Context) (now time.Time, err error) {
			err = e.MySQL.DB().QueryRowContext(ctx, clockSQL).Scan(&now)
			return now, err
		}))
	}
	if e.reached[aRedis] == nil {
		some, err := onMasters(ctx, e, aRedis, func(c *redis.Client, addr string) ([]Finding, error) {
			return []Finding{clock(ctx, "Redis at "+addr, func(ctx context.Context) (time.Time, error) { return c.Time(ctx).Result() })}, nil
		})
		all = append(all, some...)
		if err != nil {
			return all, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it needs a server")
	}
	return all, nil
}

func clock(ctx context.Context, server string, ask func(context.Context) (time.Time, error)) Finding {
	var apart, trip time.Duration
	for i := range 3 { // the shortest trip is the most precise
		began := time.Now()
		now, err := ask(ctx)
		took := time.Since(began)
		if err != nil {
			return unknown("the clock of "+server, err, "")
		}
		if i == 0 || took < trip {
			trip, apart = took, now.Sub(began.Add(took/2))
		}
	}
	if apart.Abs() > mostApart+trip/2 {
		return found(Warning, "the clock of "+server+" is another than this host's", fmt.Sprintf("%s apart, in a round trip of %s", apart.Round(time.Millisecond), trip.Round(time.Microsecond)),
			"have both follow a time server")
	}
	return ok("the clock of %s is within %s of this host's", server, (apart.Abs() + trip/2).Round(time.Millisecond))
}

// Contract: the dictionary, without a row lock; it shows only tables that the account has a
// privilege on.
const outboxesSQL = `SELECT table_schema FROM information_schema.tables
WHERE table_name = '` + schema.Table + `' AND table_schema <> DATABASE() ORDER BY table_schema LIMIT 6`

// schemaFits also looks for an outbox in other databases, since a wrong database name is a common
// mistake.
func schemaFits(ctx context.Context, e *Inputs) ([]Finding, error) {
	db := e.MySQL.DB()
	err := schema.Check(ctx, db)
	switch {
	case err == nil:
		return layout(ctx, e)
	case !errors.Is(err, schema.Err):
		return nil, err
	}
	var here string
	if err := db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&here); err != nil {
		return nil, fmt.Errorf("ask for the database: %w", err)
	}
	others, readErr := texts(ctx, db, outboxesSQL)
	if most := 5; len(others) > most {
		others = append(others[:most], "and in more")
	}
	if have, versionErr := schema.Read(ctx, db); versionErr == nil && have == 0 && readErr == nil && len(others) > 0 {
		return []Finding{found(Critical, "the database "+here+" has no outbox, and another one has: is the DSN's database wrong?",
			err.Error()+"; there is one in "+strings.Join(others, ", "), "name the right database in --mysql-dsn")}, nil
	}
	evidence, cure := err.Error(), "unstale migrate up, or deploy the other binary"
	if errors.Is(err, schema.ErrOlder) {
		evidence, cure, _ = strings.Cut(evidence, "; ")
	}
	all := []Finding{found(Critical, "the tables of the outbox in "+here+" do not fit this binary", evidence, cure)}
	if readErr != nil {
		all = append(all, unknown("whether another database has an outbox", readErr, ""))
	}
	return all, nil
}

// layout compares the tables with the result of the migrations. Only an account with TRIGGER sees
// triggers, and that is the audit's.
func layout(ctx context.Context, e *Inputs) (all []Finding, _ error) {
	list, err := schema.Deviations(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	if e.reached[auditMySQL] == nil && e.elsewhere[auditMySQL] == nil {
		more, err := schema.Deviations(ctx, e.AuditMySQL.DB())
		if err != nil {
			return nil, err
		}
		for _, d := range more {
			if !slices.Contains(list, d) {
				list = append(list, d)
			}
		}
	}
	have, err := schema.Read(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	switch {
	case len(list) == 0 && have > schema.Version:
		return []Finding{ok("the outbox has version %d, which is newer than this binary's %d and declares that the binary may run on it", have, schema.Version)}, nil
	case len(list) == 0:
		return []Finding{ok("the outbox has version %d, and its tables are as the migrations left them", have)}, nil
	}
	for _, d := range list {
		all = append(all, found(Warning, d.What, fmt.Sprintf("version %d has it otherwise", schema.Version), d.Cure))
	}
	return all, nil
}
