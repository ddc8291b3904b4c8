package migrations

import (
	"context"
	"errors"

	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/ddl"
)

// An Option changes how [Up] and [Down] go about it.
type Option func(*stepper)

// Notify makes Up and Down call say when a step has to wait for a lock. It is called in the caller's goroutine.
func Notify(say func(notice string)) Option { return func(s *stepper) { s.say = say } }

// stepTries is how often a step is begun that finds its work done on the way.
const stepTries = 3

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
func (s *stepper) step(ctx context.Context, take func(context.Context) (*goose.MigrationResult, error)) (r *goose.MigrationResult, err error) {
	for range stepTries {
		err = ddl.Patiently(ctx, name, s.say, func(ctx context.Context) (err error) {
			r, err = take(ctx)
			return err
		})
		if !isDoneAlready(err) {
			break
		}
	}
	return r, err
}

// name is the step that failed, if goose came as far as a step.
func name(err error) string {
	var e *goose.PartialError
	if errors.As(err, &e) {
		return "step " + e.Failed.Source.Path
	}
	return "the step in hand"
}
