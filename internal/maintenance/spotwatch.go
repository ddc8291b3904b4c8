package maintenance

import (
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// drift is how much the clock of a master may gain or lose on this process's clock while both are
// slewed, in 1/drift; slack is the error of one reading, in microseconds.
const (
	drift = 1000
	slack = 100
)

// A watch notices what makes times of a master incomparable: its clock was set, or it got or lost
// slots. Then another generation begins. A clock that is set backwards by less than the time that a
// reading took, or that is set forth and back between two readings, goes unnoticed.
type watch struct {
	base       time.Time // of this process's monotonic clock
	generation int
	masters    map[string]*span // by address
}

// A span bounds the difference between the clock of a master and this process's clock at a time.
type span struct {
	low, high int64 // microseconds
	at        time.Time
	layout    string // "": not seen yet
}

func newWatch() watch { return watch{base: time.Now(), masters: map[string]*span{}} }

// saw follows a reading.
func (w *watch) saw(r keyspace.Reading) *span {
	next := &span{
		low:  int64(r.Micros) - r.Answered.Sub(w.base).Microseconds() - slack,
		high: int64(r.Micros) - r.Sent.Sub(w.base).Microseconds() + slack, at: r.Answered,
	}
	before := w.masters[r.Addr]
	w.masters[r.Addr] = next
	if before == nil {
		return next
	}
	next.layout = before.layout
	if passed := r.Answered.Sub(before.at); passed < 0 { // of another goroutine
		next.at = before.at
	}
	widen := max(r.Answered.Sub(before.at), 0).Microseconds() / drift
	low, high := max(next.low, before.low-widen), min(next.high, before.high+widen)
	if low > high {
		w.generation++
		return next
	}
	next.low, next.high = low, high
	return next
}

// sawMaster follows a look.
func (w *watch) sawMaster(m *keyspace.Master) {
	s := w.saw(m.Reading)
	if s.layout != "" && s.layout != m.Layout {
		w.generation++
	}
	s.layout = m.Layout
}
