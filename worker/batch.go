package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
)

// A batch holds the rows of one claim: their plans merged, each key once. Not safe for concurrent
// use.
type batch struct {
	m       *invalidation.Map
	answers *invalidation.Answers // of the lookups
	changes []change
	set     keyspace.TargetSet
	at      []int             // backs the targets of all changes
	sweeps  sweepList         // of all changes
	made    weight            // by all changes
	aside   []uint64          // heavy rows, which need a separate batch
	unlinks keyspace.Unlinked // of the set
}

// newBatch decodes rows, up to the budget, and finds the faults that need neither map nor server.
func newBatch(m *invalidation.Map, rows []store.ClaimedRow, most budget) *batch {
	n := len(rows) // a row has one key, mostly
	b := &batch{
		m: m, changes: make([]change, 0, n),
		set: keyspace.NewTargetSet(n), at: make([]int, 0, n),
	}
	params := 0
	for i := range rows {
		row := &rows[i]
		if most.light && row.ParamsBytes > lightParams {
			b.setAside(row)
			continue
		}
		if params += len(row.Params); params > most.params && len(b.changes) > 0 {
			break
		}
		b.changes = append(b.changes, change{row: row})
		b.changes[len(b.changes)-1].decode(m.Limits().ParamsBytes)
	}
	return b
}

// setAside leaves a heavy row for a separate batch.
func (b *batch) setAside(row *store.ClaimedRow) { b.aside = append(b.aside, row.ID) }

// rows returns those of the changes, of all that were claimed.
func (b *batch) rows(claimed []store.ClaimedRow) []store.ClaimedRow {
	if len(b.aside) == 0 {
		return claimed[:len(b.changes)]
	}
	rows := make([]store.ClaimedRow, len(b.changes))
	for i := range b.changes {
		rows[i] = *b.changes[i].row
	}
	return rows
}

// expand turns the changes into targets, as far as the budget goes. The rows beyond are dropped
// from the batch and stay in the table, and so do heavy rows, which are set aside, unless the batch
// is theirs.
func (b *batch) expand(answers *invalidation.Answers, most budget) {
	kept := 0
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault == nil {
			plan, err := b.m.Expand(c.decoded, answers)
			if err != nil {
				c.blame(err)
			} else {
				c.plan = plan
			}
		}
		c.expandPartly(b.m)
		n := c.weight()
		if most.light && n.isHeavy() {
			b.setAside(c.row)
			continue
		}
		if kept > 0 && !b.fits(c, n, most) {
			break
		}
		b.made.names, b.made.bytes = b.made.names+n.names, b.made.bytes+n.bytes
		if c.applies() {
			c.targets = b.merge(c.plan)
			b.sweeps.addChange(c)
		}
		c.end = len(b.set.Targets)
		if kept < i {
			b.changes[kept] = *c
		}
		kept++
	}
	b.changes = b.changes[:kept]
}

// fits reports whether a change of weight n fits the rest of the budget.
func (b *batch) fits(c *change, n weight, most budget) bool {
	if b.made.names+n.names > most.names || b.made.bytes+n.bytes > most.bytes {
		return false
	}
	keys, sweeps := len(b.set.Targets)+len(c.plan.Keys), len(b.sweeps.list)+len(c.plan.Patterns)+len(c.plan.Sets)
	if keys > most.keys { // count exactly: other rows may have the same keys
		keys = len(b.set.Targets) + b.set.Missing(c.plan.Keys)
	}
	if sweeps > most.sweeps {
		sweeps = len(b.sweeps.list) + b.sweeps.missing(c)
	}
	return keys <= most.keys && sweeps <= most.sweeps
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

// partKeys and partBytes are how many keys, and bytes of them, go to Redis before the clock is
// looked at.
const (
	partKeys  = 10_000
	partBytes = 1 << 20
)

// unlink unlinks the targets, with the result in unlinks. After half of the time until the deadline of ctx, it drops rows that
// are not unlinked yet from the batch, and they stay in the table. So a batch that is too large for
// its deadline makes progress.
func (b *batch) unlink(ctx context.Context, redis maintenance.Redis) error {
	deadline, _ := ctx.Deadline()
	half := time.Now().Add(time.Until(deadline) / 2)
	for from := 0; from < len(b.set.Targets); {
		to := b.partEnd(from)
		part, err := redis.Unlink(ctx, b.set.Targets[from:to])
		switch {
		case err != nil:
			return err
		case from == 0: // before every other part
			b.unlinks = part
		// what was unlinked before may be lost
		case part.Position.Epoch != b.unlinks.Position.Epoch:
			return &keyspace.Loss{Position: b.unlinks.Position}
		default:
			for _, f := range part.Failures {
				b.unlinks.Failures = append(b.unlinks.Failures, keyspace.Failure{Index: from + f.Index, Err: f.Err})
			}
			b.unlinks.Ended, b.unlinks.Position = part.Ended, part.Position
		}
		if from = to; from < len(b.set.Targets) && time.Now().After(half) {
			b.cut(from)
		}
	}
	return nil
}

// partEnd returns where a part ends that begins at from: behind one target at least.
func (b *batch) partEnd(from int) int {
	bytes := 0
	for i, t := range b.set.Targets[from:min(from+partKeys, len(b.set.Targets))] {
		if bytes += len(t.Key); bytes > partBytes && i > 0 {
			return from + i
		}
	}
	return min(from+partKeys, len(b.set.Targets))
}

// cut drops the changes that have a target beyond n, but never the first one. Their rows stay in
// the table.
func (b *batch) cut(n int) {
	kept := max(sort.Search(len(b.changes), func(i int) bool { return b.changes[i].end > n }), 1)
	b.changes = b.changes[:kept]
	b.set.Truncate(b.changes[kept-1].end)
	b.listSweeps()
}

// listSweeps rebuilds the list of sweeps from the changes without faults.
func (b *batch) listSweeps() {
	b.sweeps = sweepList{}
	for i := range b.changes {
		if c := &b.changes[i]; c.applies() {
			b.sweeps.addChange(c)
		}
	}
}

// refuseJournal dead-letters the batch's only change, whose entry the journal cannot take.
func (b *batch) refuseJournal() {
	switch c := &b.changes[0]; {
	case c.partial:
		c.partial = false
		b.listSweeps()
	case c.fault == nil:
		c.refuse(invalidation.TooManyKeys, errors.New(
			"its keys were unlinked, but its entry in the journal or its sweeps are larger than max_allowed_packet; raise that, then retry"))
	}
}

// blameFailures marks the changes whose keys Redis refused or could not be asked about, and returns
// the keys that are gone.
func (b *batch) blameFailures() (gone []string) {
	refused := make(map[int]error, len(b.unlinks.Failures))
	for _, f := range b.unlinks.Failures {
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
			if err := refused[n]; maintenance.IsRedis(err) {
				c.away = fmt.Errorf("key %q: %w", b.set.Targets[n].Key, err)
				break
			} else if err != nil && c.partial { // its lookup's fault stands
				c.partial = false
				break
			} else if err != nil {
				c.refuse(invalidation.RedisRefused, fmt.Errorf("key %q: %w", b.set.Targets[n].Key, err))
				c.retry = true
				break
			}
		}
	}
	b.listSweeps()
	return gone
}

// An asideList has the IDs of the heavy rows of a queue that batches of light rows have left in the
// table, the oldest first. Claims of light rows pass them over. The list may be out of date: a row
// in it may be gone, and a later claim finds a row that is missing. Owned by the loop.
type asideList struct{ ids []uint64 }

// setAside appends rows, as many as a claim can pass over. A later claim finds the others again.
func (a *asideList) setAside(ids []uint64) {
	for _, id := range ids {
		if len(a.ids) == store.MaxNamed {
			return
		}
		if !slices.Contains(a.ids, id) {
			a.ids = append(a.ids, id)
		}
	}
}

// first returns at most n rows, the oldest ones.
func (a *asideList) first(n int) []uint64 { return slices.Clone(a.ids[:min(n, len(a.ids))]) }

// remove drops rows from the list.
func (a *asideList) remove(ids []uint64) {
	a.ids = slices.DeleteFunc(a.ids, func(id uint64) bool { return slices.Contains(ids, id) })
}

// putBack moves rows behind the others.
func (a *asideList) putBack(ids []uint64) {
	a.remove(ids)
	a.setAside(ids)
}

// A change is one claimed row on its way: decoded, then expanded, then either applied or at fault.
type change struct {
	row     *store.ClaimedRow
	decoded invalidation.Row
	plan    invalidation.Plan
	targets []int // indexes into batch.set.Targets, one for each of plan.Keys
	end     int   // of the targets of this change and of all before it
	fault   *invalidation.RowError
	retry   bool // the fault may pass: delay the row before dead-lettering it
	known   bool // the fault is an entity that was known lately: delay the row for longer
	partial bool // at fault, and what needs no lookup is applied: see expandPartly
	// the outage of the shard that has one of the keys: delay the row without counting an attempt
	away error
}

func (c *change) decode(paramsLimit int) {
	switch cut := c.row.TruncatedField(); {
	case cut != "":
		c.refuse(invalidation.BadParameter, fmt.Errorf(
			"%s fills its column, so it was probably cut by a non-strict sql_mode; write at most %d characters of entity and %d of id",
			cut, outbox.MaxEntity, outbox.MaxID))
		return
	case c.row.Unread() || c.row.ParamsBytes > paramsLimit:
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

// weight returns the weight of the change, by its plan or its fault.
func (c *change) weight() weight {
	p := &c.plan
	n := weight{names: p.Len(), bytes: size(p.Keys) + size(p.Patterns) + size(p.Sets)}
	switch {
	case c.fault != nil: // the row is copied to the delayed rows or the dead letters
		n.bytes += c.row.ParamsBytes
	case !c.row.Repeated:
		n.bytes += len(p.Repeat) * c.row.ParamsBytes
	}
	return n
}

// applies reports whether the plan of the change goes to Redis and to the journal.
func (c *change) applies() bool { return c.away == nil && (c.fault == nil || c.partial) }

// settlement returns the outcome of each change: applied rows are done and journalled, a fault that
// may pass is delayed until its attempts are used up, any other is dead-lettered.
func (b *batch) settlement(cfg Config) store.Settlement {
	n := len(b.changes) // nothing is wrong with any of them, mostly
	s := store.Settlement{MapVersion: b.m.Version(), Done: make([]uint64, 0, n), Journal: make([]store.JournalEntry, 0, n)}
	for i := range b.changes {
		c := &b.changes[i]
		switch {
		case c.away != nil:
			s.Delays = append(s.Delays, store.Delay{
				ID: c.row.ID, After: awayDelay(time.Since(c.row.CreatedAt)), Attempts: c.row.Attempts, Reason: store.ReasonAway, Error: c.away.Error(),
			})
			continue
		case c.fault != nil:
			if c.partial {
				entry := c.entry()
				entry.Partial = true
				s.Journal = append(s.Journal, entry)
			}
			c.settleFault(cfg, &s)
			continue
		}
		s.Done = append(s.Done, c.row.ID)
		s.Journal = append(s.Journal, c.entry())
		if !c.row.Repeated {
			for _, after := range c.plan.Repeat {
				s.Repeats = append(s.Repeats, store.Repeat{ID: c.row.ID, After: after})
			}
		}
	}
	s.Sweeps = b.sweeps.list
	return s
}

func (c *change) entry() store.JournalEntry {
	id := c.row.FirstID
	return store.JournalEntry{
		ID: id, Entity: c.row.Entity, EntityID: c.row.EntityID, Trace: c.row.Trace,
		Keys: c.plan.Keys, Patterns: c.plan.Patterns, Sets: c.plan.Sets, HoldMillis: millis(c.plan.Hold), WrittenMicros: c.row.CreatedAt.UnixMicro(),
	}
}

// visible returns how long a row was visible before the time of its UNLINK, at most: see
// metrics.late. The age is the age of the row at that time. A delayed row was visible when it was
// first claimed, so its age counts.
func visible(c *store.Claim, age time.Duration, unlinked time.Time) time.Duration {
	if c.Unseen.IsZero() {
		return age
	}
	return min(age, unlinked.Sub(c.Unseen))
}

// counts returns the counts of a batch, as its settlement decides, and those by entity.
func (b *batch) counts(ageOf func(*store.ClaimedRow, time.Time) time.Duration, c *store.Claim, s *store.Settlement) (n store.Counts, by store.Entities) {
	by = store.Entities{}
	if len(b.set.Targets) > 0 {
		n.Batches = 1
	}
	dead := s.Dead // in the order of the changes
	for i := range b.changes {
		change := &b.changes[i]
		r := change.row
		died := len(dead) > 0 && dead[0].ID == r.ID
		if died {
			dead = dead[1:]
		}
		switch {
		case r.Repeated || r.FirstID == 0:
		case died:
			n.Dead++
		case change.fault == nil && change.away == nil && len(change.plan.Keys) > 0:
			late := visible(c, ageOf(r, s.Marks.Unlinked), s.Marks.Unlinked)
			n.Add(late)
			by.Add(r.Entity, late)
		}
	}
	return n, by
}
