package worker

import (
	"log/slog"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
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

// note records one row.
func (t *rowLog) note(reason string, row *store.ClaimedRow, text string) {
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
			t.write(reason, n)
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
		t.write(reason, n)
		n.timer = time.AfterFunc(rowLogInterval, func() { t.again(reason, n) })
	}
}

func (t *rowLog) write(reason string, n *rowLogReason) {
	t.log.Warn(t.message, "rows", n.rows, "reason", reason, "entity", n.entity, "id", n.id, "error", n.error)
	n.rows = 0
}

// close logs what is not logged yet. The log may be used on.
func (t *rowLog) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for reason, n := range t.reasons {
		if n.timer != nil {
			n.timer.Stop()
			n.timer = nil
		}
		if n.rows > 0 {
			t.write(reason, n)
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

// close logs what is not logged yet. The logs may be used on.
func (l *rowLogs) close() {
	l.dead.close()
	l.delayed.close()
}

// note logs the rows of a claim that were just dead-lettered or delayed because of a fault. An
// unavailable shard is logged elsewhere.
func (l *rowLogs) note(rows []store.ClaimedRow, s store.Settlement) {
	if len(s.Dead)+len(s.Delays) == 0 {
		return
	}
	byID := make(map[uint64]*store.ClaimedRow, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	for _, d := range s.Dead {
		l.dead.note(d.Reason, byID[d.ID], d.Error)
	}
	for _, d := range s.Delays {
		if d.Reason != store.ReasonAway {
			l.delayed.note(d.Reason, byID[d.ID], d.Error)
		}
	}
	l.dead.flush()
	l.delayed.flush()
}
