package migrations

import (
	"context"
	"errors"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/schema"
)

// An Option changes how [Up] and [Down] go about it.
type Option func(*stepper)

// Notify makes Up and Down call say when they have to wait for another process or for a lock. It is
// called in the goroutine of the caller.
func Notify(say func(notice string)) Option { return func(s *stepper) { s.say = say } }

// stepTries is how often a step is begun that finds its work done on the way.
const stepTries = 3

// A stepper takes steps.
type stepper struct {
	say   func(string)
	files fs.FS // embedded, except in tests
	turn  *schema.Turn
}

func newStepper(options []Option) *stepper {
	s := &stepper{say: func(string) {}, files: files}
	for _, o := range options {
		o(s)
	}
	return s
}

// step takes one step, and finishes it even if ctx ends. A process that was killed in the middle of
// a step leaves an ALTER behind that the server finishes. The next process first checks whether its
// step is done. It is not, and behind the orphan the step is refused: because the lock does not
// come in time, or because the work is done by then. So it checks again. When ctx ends, a step that
// was refused its lock is not retried: the error wraps those of ctx and of the server.
func (s *stepper) step(ctx context.Context, take func(context.Context) (*goose.MigrationResult, error)) (r *goose.MigrationResult, err error) {
	for range stepTries {
		err = s.turn.Patiently(ctx, name, func(ctx context.Context) (err error) {
			r, err = take(ctx)
			return err
		})
		if !isDoneAlready(err) {
			break
		}
	}
	return r, err
}

// name returns the step that failed, if goose came as far as a step.
func name(err error) string {
	var e *goose.PartialError
	if errors.As(err, &e) {
		return "step " + e.Failed.Source.Path
	}
	return "the current step"
}
