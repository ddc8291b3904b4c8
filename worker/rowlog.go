package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// rowLogInterval is the time between two lines of one reason: a broken application makes many bad
// rows.
const rowLogInterval = 10 * time.Second

// A rowLog logs rows that failed. Each reason is logged immediately, and then at most once per
// interval; each row is counted in one record. Safe for concurrent use.
type rowLog struct {
	log     *slog.Logger
	message string

	mu      sync.Mutex
	reasons map[string]*rowLogReason
}

// A rowLogReason is the pending log record of one reason.
type rowLogReason struct {
	rows              int // that are not logged yet
	entity, id, error string
	timer             *time.Timer // nil unless the reason was logged within the interval
}

func newRowLog(log *slog.Logger, message string) *rowLog {
	return &rowLog{log: log, message: message, reasons: map[string]*rowLogReason{}}
}

// addRow records one row.
func (t *rowLog) addRow(reason string, row *store.ClaimedRow, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.reasons[reason]
	if n == nil {
		n = &rowLogReason{}
		t.reasons[reason] = n
	}
	if n.rows++; n.rows == 1 {
		n.entity, n.id, n.error = row.Entity, row.EntityID, text
	}
}

// flush logs what is due now, and leaves the rest to the end of its interval.
func (t *rowLog) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for reason, n := range t.reasons {
		if n.rows > 0 && n.timer == nil {
			t.logReason(reason, n)
			n.timer = time.AfterFunc(rowLogInterval, func() { t.again(reason, n) })
		}
	}
}

// again runs at the end of an interval.
func (t *rowLog) again(reason string, n *rowLogReason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.timer == nil { // close was faster
		return
	}
	n.timer = nil
	if n.rows > 0 {
		t.logReason(reason, n)
		n.timer = time.AfterFunc(rowLogInterval, func() { t.again(reason, n) })
	}
}

func (t *rowLog) logReason(reason string, n *rowLogReason) {
	t.log.Warn(t.message, "rows", n.rows, "reason", reason, "entity", n.entity, "id", n.id, "error", n.error)
	n.rows = 0
}

// logRest logs what is not logged yet. The log may be used on.
func (t *rowLog) logRest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for reason, n := range t.reasons {
		if n.timer != nil {
			n.timer.Stop()
			n.timer = nil
		}
		if n.rows > 0 {
			t.logReason(reason, n)
		}
	}
}

// rowLogs log what became of rows that failed.
type rowLogs struct{ dead, delayed *rowLog }

func newRowLogs(log *slog.Logger) *rowLogs {
	return &rowLogs{
		dead:    newRowLog(log, "rows are dead letters now, see 'unstale dead list'"),
		delayed: newRowLog(log, "rows are delayed and tried again, see cache_outbox_delayed"),
	}
}

// logRest logs what is not logged yet. The logs may be used on.
func (l *rowLogs) logRest() {
	l.dead.logRest()
	l.delayed.logRest()
}

// logRows logs the rows of a claim that were just dead-lettered or delayed because of a fault. An
// unavailable shard is logged elsewhere.
func (l *rowLogs) logRows(rows []store.ClaimedRow, s store.Settlement) {
	if len(s.Dead)+len(s.Delays) == 0 {
		return
	}
	byID := make(map[uint64]*store.ClaimedRow, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	for _, d := range s.Dead {
		l.dead.addRow(d.Reason, byID[d.ID], d.Error)
	}
	for _, d := range s.Delays {
		if d.Reason != store.ReasonAway {
			l.delayed.addRow(d.Reason, byID[d.ID], d.Error)
		}
	}
	l.dead.flush()
	l.delayed.flush()
}

const (
	// between two queries of the entities of the journal, for any number of unknown ones
	journalInterval = time.Minute
	// after a look that failed: an outage that is over keeps no row waiting
	journalRetry = 5 * time.Second
	journalLimit = time.Second // of one look
	knownTries   = 64          // of a row whose entity was known lately: about an hour
	knownDelay   = time.Minute // the longest wait between two of them
)

// journalEntities remember which entities the journal has, of this worker and of all others.
type journalEntities struct {
	mu    sync.Mutex
	found map[string]bool
	err   error     // the look failed
	due   time.Time // when there is another
}

// has reports whether an entity was settled lately. Where the journal could not be asked it reports
// that: to wait loses nothing.
func (j *journalEntities) has(ctx context.Context, entity string, ask func(context.Context) (map[string]bool, error)) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !time.Now().Before(j.due) {
		ctx, cancel := context.WithTimeout(ctx, journalLimit)
		defer cancel()
		j.found, j.err = ask(ctx)
		interval := journalInterval
		if j.err != nil {
			interval = journalRetry
		}
		j.due = time.Now().Add(interval)
	}
	return j.found[entity], j.err
}

// knownEntities are entities that are not in the map but were known before.
type knownEntities struct {
	*base
	journal journalEntities
}

// delay delays rows whose entity the map does not have and had lately: the file was probably cut
// short, or is older than what runs elsewhere. Dead-lettering them would lose what a good map
// cures.
func (k *knownEntities) delay(ctx context.Context, b *batch) {
	known := map[string]string{}
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault == nil || c.fault.Reason != invalidation.UnknownEntity {
			continue
		}
		why, asked := known[c.row.Entity]
		if !asked {
			why = k.lately(ctx, c.row.Entity)
			known[c.row.Entity] = why
		}
		if why != "" {
			c.fault.Err = fmt.Errorf("%w of version %s, but %s", c.fault.Err, b.m.Version(), why)
			c.known = true
		}
	}
}

// lately returns how an entity was known that is not in the map, or "".
func (k *knownEntities) lately(ctx context.Context, entity string) string {
	if version := k.maps.had(entity); version != "" {
		return "the map of version " + version + " had it"
	}
	switch found, err := k.journal.has(ctx, entity, k.Store.Journal.JournalEntities); {
	case err != nil:
		return "the journal could not be searched for it: " + err.Error()
	case found:
		return "rows of it were settled within the last day"
	}
	return ""
}

// vanishInterval is the time between two lines of what vanishes: where it is meant so, all rows of
// an entity may do it.
const vanishInterval = time.Hour

// A vanishing counts parts of rows without any effect: that is not a fault, and may be a mistake
// that otherwise stays unnoticed.
type vanishing struct {
	counts  *entityCounts
	untold  int       // since the last line
	due     time.Time // when the next line may come
	example []any     // for that line, as the log's arguments
}

// countUnused counts n of a row. It asks for the example once per log record.
func (v *vanishing) countUnused(c *change, n int, example func() []any) {
	v.counts.addCount(c.row.Entity, n)
	v.untold += n
	if v.example == nil && !time.Now().Before(v.due) {
		v.example = append([]any{"entity", c.row.Entity, "id", c.row.EntityID}, example()...)
	}
}

// tell writes the line that is due, if there is one.
func (v *vanishing) tell(log func(message string, args ...any), message, unit string) {
	if v.example == nil {
		return
	}
	log(message, append([]any{unit, v.untold}, v.example...)...)
	v.untold, v.example, v.due = 0, nil, time.Now().Add(vanishInterval)
}

// vanished counts what rows do without any effect. Owned by the loop.
type vanished struct {
	log        *slog.Logger
	dropped    vanishing // templates
	undeclared vanishing // parameters
}

// countBatch counts the unused values of the rows of a batch that was just settled, and the
// templates that made nothing of them. Faults are reported elsewhere, and a repeat was counted with
// its row.
func (v *vanished) countBatch(b *batch) {
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault != nil || c.away != nil || c.row.Repeated {
			continue
		}
		if n := c.plan.Dropped; n > 0 {
			v.dropped.countUnused(c, n, func() []any { return b.droppedExample(c) })
		}
		if len(c.decoded.Params) == 0 {
			continue
		}
		if names := b.m.Undeclared(c.decoded); len(names) > 0 {
			v.undeclared.countUnused(c, len(names), func() []any { return []any{"parameter", names[0]} })
		}
	}
	v.dropped.tell(v.log.Info, "templates made nothing, since rows do not give an optional name", "templates")
	v.undeclared.tell(v.log.Warn, "rows give parameters that the map does not declare for their entity, and they are ignored, see 'unstale map explain'", "parameters")
}

func (b *batch) droppedExample(c *change) []any {
	d, _ := b.m.FirstDropped(c.decoded, b.answers)
	args := []any{"template", d.Text, "absent", d.Param}
	if d.Entity != c.row.Entity {
		args = append(args, "as", d.Entity)
	}
	return args
}
