package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

const (
	countLimit = 3 * time.Second // of counting what a replay would do
	triedNames = 100             // of the map, for the permissions in Redis
)

// lookReplay counts what a replay would do.
func (c *actor) lookReplay(ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Button: "Replay", args: in, Fields: []field{
		{Name: "since", Label: "Settled within", Value: in.Get("since"), Hint: "10m"},
		{Name: "all", Label: "The whole journal", Value: in.Get("all"), Check: true},
		{Name: "entity", Label: "Only this entity", Value: in.Get("entity")}, {Name: "id", Label: "Only this ID", Value: in.Get("id")},
	}}
	since, err := past(in, "since")
	q, all := store.JournalQuery{Since: since, Entity: in.Get("entity"), EntityID: in.Get("id")}, in.Get("all") != ""
	switch {
	case err != nil:
		it.Block = err.Error()
	case all && since > 0:
		it.Block = "the whole journal and a time are given; give one of them"
	case q.EntityID != "" && q.Entity == "":
		it.Block = "an ID needs its entity"
	case c.redis == nil:
		it.Block = "the console has no Redis account; set --console-redis-url, with the permissions of a worker: docs/console.md"
	case c.cfg.Worker == nil:
		it.Block = "this process has no worker, and so no map that names the channel; use unstale replay"
	}
	if it.Block != "" || !all && since == 0 {
		return it, nil
	}
	if since > 0 {
		if q.At, err = c.moment(ctx, in); err != nil {
			return nil, err
		}
		it.Notes = append(it.Notes, "This is what was settled since "+absolute(q.At.Add(-since))+".")
	}
	if it.Block, err = c.missingInRedis(ctx); err != nil {
		return nil, err
	}
	m := c.cfg.Worker.Map()
	job := history.Job{MySQL: c.db, Unlinker: c.redis.Unlinker, Publisher: c.redis.Publisher, Channel: m.Channel(), Format: m.Format(), Query: q, DryRun: true}
	counting, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	would, err := job.Run(counting)
	least := ""
	switch {
	case err != nil && counting.Err() == nil:
		return nil, err
	case err != nil:
		least = "at least "
	}
	it.seen = []any{q, job.Channel, job.Format}
	it.Says = fmt.Sprintf("Unlinks again, and publishes on %s, %s%s of %s in %s, and requests %s. Readers then load these values again.",
		output.Data(job.Channel), least, many(would.Keys, "key"), many(would.Rows, "row"), many(would.Batches, "journal row"), many(would.Sweeps, "sweep"))
	if len(would.Damaged) > 0 {
		it.Notes = append(it.Notes, fmt.Sprintf("These journal rows cannot be read: %v. Invalidate again what was written at that time.", would.Damaged))
	}
	job.DryRun = false
	it.do = func(ctx context.Context, _ *store.Actions, who string, progress func(string)) (string, error) {
		redis, err := keyspace.Open(c.cfg.keyspace()) // its messages have their own numbers
		if err != nil {
			return "", err
		}
		job.Operator, job.Unlinker, job.Publisher = who, redis.Unlinker, redis.Publisher
		job.Progress = func(r history.Result) { progress(many(r.Keys, "key") + " of " + many(r.Rows, "row") + " so far") }
		done, err := job.Run(ctx)
		err = errors.Join(err, redis.Close())
		if err != nil {
			err = fmt.Errorf("replay is not complete, run it again: %w", err)
		} else {
			err = done.Problem()
		}
		return fmt.Sprintf("Unlinked %s of %s in %s, and requested %s.", many(done.Keys, "key"), many(done.Rows, "row"), many(done.Batches, "journal row"), many(done.Sweeps, "sweep")), err
	}
	return it, nil
}

// missingInRedis tries the commands of a replay on made-up names, and returns what the account
// lacks, or "".
func (c *actor) missingInRedis(ctx context.Context) (string, error) {
	m := c.cfg.Worker.Map()
	t := keyspace.Trial{Channel: m.Channel()}
	for _, n := range m.Names() {
		if strings.Contains(n.Glob, "*") && len(t.Keys) < triedNames {
			t.Keys = append(t.Keys, keyspace.TrialKey(n.Glob, "unstale-console"))
		}
	}
	rights, err := c.redis.Account.TryRights(ctx, t)
	if err != nil {
		return "", err
	}
	var rules []string
	for _, r := range rights {
		if command, _, _ := strings.Cut(r.What, " "); slices.Contains([]string{"UNLINK", "PUBLISH", "SPUBLISH"}, command) {
			rules = append(rules, strings.Fields(r.Rule)...)
			if errors.Is(r.Err, keyspace.ErrUntried) {
				rules = append(rules, "+subscribe", "+"+strings.ToLower(command), "&"+m.Channel())
			}
		}
	}
	if len(rules) == 0 {
		return "", nil
	}
	slices.Sort(rules)
	return "the Redis account of the console lacks permissions: ACL SETUSER ... " + strings.Join(slices.Compact(rules), " ") + ": docs/console.md", nil
}

// lookPause shows which workers would pause, and until when.
func (c *actor) lookPause(ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Button: "Pause all workers", args: in, Fields: []field{
		{Name: "for", Label: "For", Value: in.Get("for"), Hint: "30m"}, {Name: "reason", Label: "Reason", Value: in.Get("reason")},
	}}
	now, err := store.NewActions(c.db).Paused(ctx)
	if err != nil {
		return nil, err
	}
	if it.seen = now; now != nil {
		it.Notes = append(it.Notes, "All workers pause already, "+now.String()+". The new pause replaces that one.")
	}
	lasts, err := past(in, "for")
	why := strings.TrimSpace(in.Get("reason"))
	switch {
	case err != nil:
		it.Block = err.Error()
	case len(why) > store.MaxReason:
		it.Block = fmt.Sprintf("the reason has %d bytes: must have at most %d", len(why), store.MaxReason)
	}
	if it.Block != "" || lasts == 0 {
		return it, nil
	}
	workers, err := store.NewWorkers(c.db).Workers(ctx)
	if err != nil {
		return nil, err
	}
	workers = slices.DeleteFunc(workers, func(w store.WorkerNote) bool { return !w.Lives() })
	it.Says = fmt.Sprintf("All workers (%s) stop claiming rows and sweeping within about a second, for %s. Rows wait, and their keys stay stale; nothing is lost.", output.Count(len(workers)), lasts)
	it.do = func(ctx context.Context, acts *store.Actions, _ string, _ func(string)) (string, error) {
		if err := acts.Pause(ctx, now, why, lasts); err != nil {
			return "", err
		}
		return "All workers pause for " + lasts.String() + ".", nil
	}
	return it, nil
}

// lookResume shows the pause that would end.
func (c *actor) lookResume(ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Button: "Resume all workers", args: in}
	now, err := store.NewActions(c.db).Paused(ctx)
	if err != nil {
		return nil, err
	}
	if it.seen = now; now == nil {
		it.Block = "nothing is paused"
		return it, nil
	}
	it.Says = "All workers claim rows again. They are paused " + now.String() + "."
	it.do = func(ctx context.Context, acts *store.Actions, _ string, _ func(string)) (string, error) {
		if _, err := acts.Resume(ctx, now); err != nil {
			return "", err
		}
		return "All workers resume; they were paused " + now.String() + ".", nil
	}
	return it, nil
}
