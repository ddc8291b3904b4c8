package worker

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
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
			b.sweeps.add(c)
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
func (b *batch) unlink(ctx context.Context, redis unlinkPort) error {
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
			b.sweeps.add(c)
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
