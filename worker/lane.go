package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// heavyOfABatch is how many heavy rows a batch asks for at most.
const heavyOfABatch = 100

// A lane processes the rows of one queue: light rows in large batches, heavy rows in separate
// batches. The loop owns it.
type lane struct {
	claim func(context.Context, store.ClaimLimits) (*store.Claim, error) // Queue.Claim or Queue.ClaimDue
	aside asideList
	// size bounds the rows of a light batch and heavySize those of a heavy one. All lanes share
	// both.
	size, heavySize *maintenance.BatchSize
}

// A turn is one batch of a lane, of light rows or of heavy ones.
type turn struct {
	lane    *lane
	heavy   bool
	open    time.Time       // until then the batch collects the rows of hints; zero: it does not
	stopped <-chan struct{} // closed when the worker stops
	alone   bool            // one row is claimed, since it was too large with others
}

func (t turn) size() *maintenance.BatchSize {
	if t.heavy {
		return t.lane.heavySize
	}
	return t.lane.size
}

// limits returns the limits of the turn's next claim.
func (t turn) limits(most budget, limits store.ClaimLimits) store.ClaimLimits {
	limits.Rows = t.size().Now()
	if t.heavy {
		limits.Only = t.lane.aside.first(limits.Rows)
		limits.Bytes = min(limits.Bytes, most.params)
	} else {
		limits.Pass, limits.Large = t.lane.aside.ids, lightParams
	}
	return limits
}

// budget returns the budget of the turn's next batch.
func (t turn) budget(cfg *Config) budget {
	if t.heavy {
		return cfg.heavyBudget()
	}
	return cfg.lightBudget()
}

// over updates the list after a batch: heavy rows that it found are added, and rows that it asked
// for are dropped unless it left them out.
func (t turn) over(asked []uint64, c *store.Claim, b *batch) {
	t.lane.aside.setAside(b.aside)
	wait := c.Left
	for _, r := range c.Rows[min(len(b.changes), len(c.Rows)):] {
		wait = append(wait, r.ID)
	}
	t.lane.aside.remove(slices.DeleteFunc(asked, func(id uint64) bool { return slices.Contains(wait, id) }))
}

// firstLight is how long light rows go first when the first heavy row is set aside. Mostly no light
// row waits after that time.
const firstLight = time.Second

// lanes are the lanes of both queues. The loop owns them.
type lanes struct {
	runner   *runner
	hot, due *lane    // of cache_outbox, and of delayed rows whose time has come
	turns    [2]*lane // both; the second had the last heavy turn
	// Heavy rows have half of the time while light rows wait: after each batch of heavy rows, light
	// rows get as much time as that batch took.
	lightUntil time.Time
	heavy      *heavyRows // of both, for others to see
}

// newLanes returns lanes whose batches r runs.
func newLanes(r *runner, heavy *heavyRows) *lanes {
	most, q := r.cfg.BatchRows, r.Store.Queue
	size, heavySize := maintenance.NewBatchSize(most), maintenance.NewBatchSize(min(most, heavyOfABatch))
	hot := &lane{claim: q.Claim, size: size, heavySize: heavySize}
	due := &lane{claim: q.ClaimDue, size: size, heavySize: heavySize}
	return &lanes{runner: r, hot: hot, due: due, turns: [2]*lane{hot, due}, heavy: heavy}
}

// light processes one batch of the light rows of a lane.
func (l *lanes) light(ctx context.Context, of *lane) (Result, error) {
	return l.runner.runBatch(ctx, turn{lane: of})
}

// hints processes one batch of the light rows of cache_outbox, and collects the rows of further
// hints until a time.
func (l *lanes) hints(ctx context.Context, open time.Time) (Result, error) {
	return l.runner.runBatch(ctx, turn{lane: l.hot, open: open})
}

// heavyTurn processes one batch of the heavy rows that were set aside, if there are any and if it
// is their turn. Light rows behind heavy ones wait at most twice as long as without them, and for
// one batch of heavy rows. r is the result of the light rows; heavyTurn adds its own.
func (l *lanes) heavyTurn(ctx context.Context, r *Result) error {
	tell := func() { l.heavy.set(l.hot.aside.ids, l.due.aside.ids) }
	tell()
	defer tell()
	next := l.nextHeavy()
	if next == nil {
		l.lightUntil = time.Time{}
		return nil
	}
	if l.lightUntil.IsZero() {
		l.lightUntil = time.Now().Add(firstLight)
	}
	if r.Full && time.Now().Before(l.lightUntil) {
		return nil
	}
	l.turns = [2]*lane{l.turns[1], l.turns[0]} // in turns
	began := time.Now()
	done, err := l.runner.runBatch(ctx, turn{lane: next, heavy: true})
	l.lightUntil = time.Now().Add(time.Since(began))
	r.Full = r.Full || l.nextHeavy() != nil
	r.merge(done)
	return err
}

// nextHeavy returns the lane whose heavy rows are next, or nil if no heavy row waits.
func (l *lanes) nextHeavy() *lane {
	for _, next := range l.turns {
		if len(next.aside.ids) > 0 {
			return next
		}
	}
	return nil
}

// A row is heavy if it exceeds one of these limits, or if one answer of a lookup has more rows than
// lightNames. Batches of light rows leave it to a batch of heavy ones, so light rows do not pay for
// it.
const (
	lightNames  = 500      // keys, patterns and sets
	lightBytes  = 64 << 10 // of their names, and of parameters that are copied to other tables
	lightParams = 8 << 10  // bytes of parameters
)

// A weight is the amount of data that the worker keeps in memory for a row and writes when it
// settles the row.
type weight struct {
	names int // keys, patterns and sets
	bytes int // of their names, and of parameters that are copied to other tables
}

func (n weight) isHeavy() bool { return n.names > lightNames || n.bytes > lightBytes }

// A budget bounds the weight of one batch, and with it the worker's memory and the time that the
// batch takes. One row always fits.
type budget struct {
	keys   int // distinct ones
	sweeps int // distinct patterns and sets, each of which is a row to be written
	names  int // of all rows, each as often as a row has it
	bytes  int // of these, and of parameters that are copied
	params int // bytes of parameters that are decoded
	light  bool
}

const (
	batchNames   = 100_000
	batchBytes   = 4 << 20
	batchSweeps  = 10_000
	batchDecoded = 1 << 20
	// A batch of heavy rows makes about as many distinct names as one row may at the default limit
	// of a map.
	heavyKeys  = 10_000
	heavyNames = 40_000
)

func (c *Config) lightBudget() budget {
	return budget{keys: c.BatchKeys, sweeps: batchSweeps, names: max(batchNames, c.BatchKeys), bytes: batchBytes, params: batchDecoded, light: true}
}

func (c *Config) heavyBudget() budget {
	return budget{keys: min(c.BatchKeys, heavyKeys), sweeps: batchSweeps, names: heavyNames, bytes: batchBytes, params: batchDecoded}
}

// heavyNews is how long a worker has heavy rows before its status record tells. Most are processed
// sooner.
const heavyNews = 200 * time.Millisecond

// A heavyRows holds the heavy rows that the loop has set aside or processes, for other goroutines.
// They wait for their turn: no other session has them locked, and more workers would not help. Safe
// for concurrent use.
type heavyRows struct {
	mu    sync.Mutex
	ids   [store.ListedTables][]uint64
	since time.Time // zero: none
}

// set records the rows of both tables.
func (h *heavyRows) set(hot, due []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids[store.ListedHot] = append(h.ids[store.ListedHot][:0], hot...)
	h.ids[store.ListedDue] = append(h.ids[store.ListedDue][:0], due...)
	switch {
	case len(hot)+len(due) == 0:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
	}
}

// lasts returns for how long there have been such rows without a break, nil for less than
// heavyNews.
func (h *heavyRows) lasts() *time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() || time.Since(h.since) < heavyNews {
		return nil
	}
	return new(time.Since(h.since))
}

// without drops such rows from a list.
func (h *heavyRows) without(table store.ListedTable, rows []lateRow) []lateRow {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(rows, func(r lateRow) bool { return slices.Contains(h.ids[table], r.ID) })
}
