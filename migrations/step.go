package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
)

// An Option changes how [Up] and [Down] go about it.
type Option func(*stepper)

// Notify makes Up and Down call say, once per step at most, when the step has to wait for a lock. It is called in the
// caller's goroutine.
func Notify(say func(notice string)) Option { return func(s *stepper) { s.say = say } }

// stepTries is how often a step is begun that finds its work done on the way.
const stepTries = 3

// patience bounds how long a step is tried again that is refused a lock.
const patience = turnSeconds * time.Second

// A stepper takes steps.
type stepper struct {
	say func(string)
}

func newStepper(options []Option) *stepper {
	s := &stepper{say: func(string) {}}
	for _, o := range options {
		o(s)
	}
	return s
}

// step takes one step, to its end also where ctx ends. A process that was killed in the middle of a step leaves an
// ALTER behind which the server finishes. A step looks first whether its work is done and sees that it is not; behind
// the orphan it is refused, because the lock does not come in time, or because the work is done by then. So it looks
// again. When ctx ends, a step that has been refused its lock is not tried again: the error wraps ctx's and the
// server's.
func (s *stepper) step(ctx context.Context, take func(context.Context) (*goose.MigrationResult, error)) (*goose.MigrationResult, error) {
	first, found, waits := time.Now(), 0, false
	for {
		begun := time.Now()
		r, err := take(context.WithoutCancel(ctx))
		switch {
		case isDoneAlready(err):
			if found++; found == stepTries {
				return nil, err
			}
		case mysqlerr.Number(err) == mysqlerr.LockTimeout:
			if time.Since(first) > patience {
				return nil, fmt.Errorf("step %s has waited for a lock for %s; see SHOW PROCESSLIST for who holds it, and run it again: %w", name(err), patience, err)
			}
			if !waits {
				waits = true
				s.say(fmt.Sprintf("step %s waits for a lock on its table; a statement of a killed migration or a long transaction may hold it", name(err)))
			}
			// What has queued behind a statement that waited is let through for as long: while an ALTER waits for a
			// transaction, inserts wait behind the ALTER.
			if ended := sleep.For(ctx, time.Since(begun)); ended != nil {
				return nil, fmt.Errorf("%w, while step %s waited for a lock: %w", ended, name(err), err)
			}
		default:
			return r, err
		}
	}
}

// name is the file of the step that failed, if goose came as far as a step.
func name(err error) string {
	var e *goose.PartialError
	if errors.As(err, &e) {
		return e.Failed.Source.Path
	}
	return "in hand"
}
