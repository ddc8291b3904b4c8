package worker

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
)

// A change is one claimed row on its way: decoded, then expanded, then either applied or at fault.
type change struct {
	row     *store.ClaimedRow
	decoded invalidation.Row
	plan    invalidation.Plan
	targets []int // indexes into batch.set.Targets, one for each of plan.Keys
	end     int   // of the targets of this change and of all before it
	fault   *invalidation.RowError
	retry   bool  // the fault may pass: delay the row before dead-lettering it
	known   bool  // the fault is an entity that was known lately: delay the row for longer
	away    error // the outage of the shard that has one of the keys: delay the row without counting an attempt
}

// A batch is what one claim becomes: its rows' plans merged, each key once. Not safe for concurrent use.
type batch struct {
	m       *invalidation.Map
	answers *invalidation.Answers // of the lookups
	changes []change
	set     keyspace.TargetSet
	at      []int // backs the targets of all changes
}

// newBatch decodes rows and finds the faults that need neither map nor server.
func newBatch(m *invalidation.Map, rows []store.ClaimedRow) *batch {
	n := len(rows) // a row has one key, mostly
	b := &batch{
		m: m, changes: make([]change, n),
		set: keyspace.NewTargetSet(n), at: make([]int, 0, n),
	}
	for i := range rows {
		c := &b.changes[i]
		c.row = &rows[i]
		c.decode(m.Limits().ParamsBytes)
	}
	return b
}

func (c *change) decode(paramsLimit int) {
	switch cut := c.row.TruncatedField(); {
	case cut != "":
		c.refuse(invalidation.BadParameter, fmt.Errorf(
			"%s fills its column, so it was probably cut by a non-strict sql_mode; write at most %d characters of entity and %d of id",
			cut, outbox.MaxEntity, outbox.MaxID))
		return
	case c.row.Oversized() || c.row.ParamsBytes > paramsLimit:
		c.refuse(invalidation.ParamsTooLarge, fmt.Errorf("%d bytes, limits.params is %d; pass ids, not documents", c.row.ParamsBytes, paramsLimit))
		return
	}
	params, err := invalidation.ParseParams(c.row.Params)
	if err != nil {
		c.blame(err)
		return
	}
	c.decoded = invalidation.Row{Entity: c.row.Entity, ID: c.row.EntityID, Params: params}
}

func (c *change) refuse(reason invalidation.Reason, err error) {
	c.fault = &invalidation.RowError{Reason: reason, Err: err}
}

// blame keeps err, which package invalidation returned, as the change's fault.
func (c *change) blame(err error) {
	if !errors.As(err, &c.fault) {
		c.refuse(invalidation.BadParameter, err)
	}
}

// batchTexts bounds the bytes of all keys, patterns and sets of a batch, which the journal keeps together.
const batchTexts = 64 << 20

// expand turns the changes into targets, until there are keyLimit of them; the rows beyond it are dropped from the
// batch and stay in the table.
func (b *batch) expand(answers *invalidation.Answers, keyLimit int) {
	texts := 0
	for i := range b.changes {
		c := &b.changes[i]
		c.end = len(b.set.Targets)
		if c.fault != nil {
			continue
		}
		plan, err := b.m.Expand(c.decoded, answers)
		if err != nil {
			c.blame(err)
			continue
		}
		c.plan = plan
		entry := c.entry()
		texts += entry.Bytes()
		if len(b.set.Targets) > 0 && (len(b.set.Targets)+len(plan.Keys) > keyLimit || texts > batchTexts) {
			b.changes = b.changes[:i]
			return
		}
		c.targets = b.merge(plan)
		c.end = len(b.set.Targets)
	}
}

// merge adds a plan's keys, and returns where they are in the set.
func (b *batch) merge(plan invalidation.Plan) []int {
	start := len(b.at)
	for _, key := range plan.Keys {
		n, _ := b.set.Add(key, plan.Hold)
		b.at = append(b.at, n)
	}
	return b.at[start:len(b.at):len(b.at)]
}

// partKeys is how many keys go to Redis before the clock is looked at.
const partKeys = 10_000

// unlink unlinks the targets. When half of the time that ctx leaves is over, what is not unlinked yet is dropped from
// the batch and stays in the table: so a batch that is too large for its deadline makes progress.
func (b *batch) unlink(ctx context.Context, redis cache) (done keyspace.Unlinked, err error) {
	deadline, _ := ctx.Deadline()
	half := time.Now().Add(time.Until(deadline) / 2)
	for from := 0; from < len(b.set.Targets); {
		to := b.partEnd(from)
		part, err := redis.Unlink(ctx, b.set.Targets[from:to])
		switch {
		case err != nil:
			return done, err
		case from > 0 && part.Position.Epoch != done.Position.Epoch: // what was unlinked before may be lost
			return done, &keyspace.Loss{Position: done.Position}
		}
		for _, f := range part.Failures {
			done.Failures = append(done.Failures, keyspace.Failure{Index: from + f.Index, Err: f.Err})
		}
		if from == 0 {
			done.Born = part.Born // before every other part
		}
		done.Position, from = part.Position, to
		if from < len(b.set.Targets) && time.Now().After(half) {
			b.cut(from)
		}
	}
	return done, nil
}

// partEnd is where a part that begins at from ends: after a change, so that each is in one part or in earlier ones.
func (b *batch) partEnd(from int) int {
	for i := range b.changes {
		if end := b.changes[i].end; end >= from+partKeys {
			return end
		}
	}
	return len(b.set.Targets)
}

// cut drops the changes that have a target beyond n.
func (b *batch) cut(n int) {
	b.set.Truncate(n)
	b.changes = b.changes[:sort.Search(len(b.changes), func(i int) bool { return b.changes[i].end > n })]
}

// refuseJournal dead-letters the batch's only change, whose entry the journal cannot take.
func (b *batch) refuseJournal() {
	if c := &b.changes[0]; c.fault == nil {
		c.refuse(invalidation.TooManyKeys, errors.New(
			"its keys were unlinked, but its entry in the journal or its sweeps are larger than max_allowed_packet; raise that, then retry"))
	}
}

// blameFailures marks the changes whose keys Redis refused or could not be asked about, and returns the keys that are
// gone.
func (b *batch) blameFailures(failures []keyspace.Failure) (gone []string) {
	refused := make(map[int]error, len(failures))
	for _, f := range failures {
		refused[f.Index] = f.Err
	}
	gone = make([]string, 0, len(b.set.Targets))
	for i, t := range b.set.Targets {
		if refused[i] == nil {
			gone = append(gone, t.Key)
		}
	}
	if len(refused) == 0 {
		return gone
	}
	for i := range b.changes {
		c := &b.changes[i]
		for _, n := range c.targets {
			if err := refused[n]; isOutage(err) {
				c.away = fmt.Errorf("key %q: %w", b.set.Targets[n].Key, err)
				break
			} else if err != nil {
				c.refuse(invalidation.RedisRefused, fmt.Errorf("key %q: %w", b.set.Targets[n].Key, err))
				c.retry = true
				break
			}
		}
	}
	return gone
}

// settlement says what becomes of each change: applied rows are done and journalled, a fault that may pass is delayed
// until its attempts are used up, any other is dead-lettered.
func (b *batch) settlement(cfg Config) store.Settlement {
	n := len(b.changes) // nothing is wrong with any of them, mostly
	s := store.Settlement{MapVersion: b.m.Version(), Done: make([]uint64, 0, n), Journal: make([]store.Entry, 0, n)}
	sweeps := sweepList{}
	for i := range b.changes {
		c := &b.changes[i]
		switch {
		case c.away != nil:
			s.Delays = append(s.Delays, store.Delay{
				ID: c.row.ID, After: awayDelay(time.Since(c.row.CreatedAt)), Attempts: c.row.Attempts, Reason: awayReason, Error: c.away.Error(),
			})
			continue
		case c.fault != nil:
			c.settleFault(cfg, &s)
			continue
		}
		s.Done = append(s.Done, c.row.ID)
		s.Journal = append(s.Journal, c.entry())
		sweeps.add(c)
		if !c.row.Repeated {
			for _, after := range c.plan.Repeat {
				s.Repeats = append(s.Repeats, store.Repeat{ID: c.row.ID, After: after})
			}
		}
	}
	s.Sweeps = sweeps.list
	return s
}

func (c *change) settleFault(cfg Config, s *store.Settlement) {
	reason, text := string(c.fault.Reason), c.fault.Error()
	attempts := c.row.Attempts + 1
	if c.known && attempts < knownTries {
		s.Delays = append(s.Delays, store.Delay{
			ID: c.row.ID, After: min(retryDelay(cfg.RetryDelay, attempts), jitter(knownDelay, 0.25)), Attempts: attempts, Reason: reason, Error: text,
		})
		return
	}
	if c.retry && attempts < cfg.MaxAttempts {
		s.Delays = append(s.Delays, store.Delay{
			ID: c.row.ID, After: retryDelay(cfg.RetryDelay, attempts), Attempts: attempts, Reason: reason, Error: text,
		})
		return
	}
	s.Dead = append(s.Dead, store.DeadRow{ID: c.row.ID, Reason: reason, Error: text})
}

// awayReason is why a row is delayed whose shard is away.
const awayReason = "redis_away"

// awayDelay grows with the time that a row has waited, so that rows by the thousand do not keep MySQL busy, and stays
// short enough to be over soon after the shard is back.
func awayDelay(age time.Duration) time.Duration {
	return jitter(min(max(age/4, time.Second), 5*time.Second), 0.25)
}

// retryDelay doubles with each attempt and is jittered by a quarter either way.
func retryDelay(base time.Duration, attempts int) time.Duration {
	d := base << min(attempts-1, 20)
	return jitter(min(max(d, base), longestRetry), 0.25)
}

func (c *change) entry() store.Entry {
	id := c.row.FirstID
	return store.Entry{
		ID: id, Entity: c.row.Entity, EntityID: c.row.EntityID, Trace: c.row.Trace,
		Keys: c.plan.Keys, Patterns: c.plan.Patterns, Sets: c.plan.Sets, HoldMillis: millis(c.plan.Hold), WrittenMicros: c.row.CreatedAt.UnixMicro(),
	}
}
