package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
)

// awaitPause is the wait between two looks at a MySQL that is not there yet.
const awaitPause = 500 * time.Millisecond

// await waits until MySQL answers, and returns what waiting cannot fix: a schema or a setting that
// does not fit, a password. A node that joins a group may get a schema that fits.
func await(ctx context.Context, s *session.Sessions, down func(error)) error {
	for {
		err := check(ctx, s)
		if err == nil || (errors.Is(err, schema.Err) || session.IsRefusal(err)) && !s.IsJoining(ctx) {
			return err
		}
		down(err)
		if err := sleep.For(ctx, awaitPause); err != nil {
			return err
		}
	}
}

// check asks MySQL whether it is fit for a worker.
func check(ctx context.Context, s *session.Sessions) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	if err := schema.Check(ctx, s.DB()); err != nil {
		return err
	}
	return s.Check(ctx)
}
