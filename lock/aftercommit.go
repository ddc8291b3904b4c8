package lock

import "errors"

// The outcomes of the sections of a lock that decide what its loss means.
const (
	noCommit  int32 = iota // the last section, if any, was rolled back
	committed              // the last section was committed
	unknown                // the last COMMIT got no answer
	refused                // a section was refused because the lock was lost; nothing changes this
)

// record stores the outcome of a section in each lock.
func (all locks) record(outcome int32) {
	for _, h := range all {
		if h.outcome.Swap(outcome) == refused {
			h.outcome.Store(refused)
		}
	}
}

// afterCommit returns err without ErrLost, if err is a loss or the end of the Locker and the last
// section of each lock was committed, or may have been. The caller must not begin such a section
// again.
func (all locks) afterCommit(err error) error {
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		return err
	}
	class := ErrLostAfterCommit
	for _, h := range all {
		switch h.outcome.Load() {
		case committed:
		case unknown:
			class = ErrCommit
		default:
			return err
		}
	}
	return lateLoss{err, class}
}

// A lateLoss is a loss that undoes nothing. It matches class instead of ErrLost, and all else that
// why wraps.
type lateLoss struct{ why, class error }

func (e lateLoss) Error() string {
	if errors.Is(e.class, ErrCommit) {
		return e.why.Error() + ", after a COMMIT whose outcome is unknown"
	}
	return e.why.Error() + ", after InTx had committed"
}

func (e lateLoss) Is(target error) bool {
	return target == e.class || target != ErrLost && errors.Is(e.why, target)
}

func (e lateLoss) As(target any) bool { return errors.As(e.why, target) }
