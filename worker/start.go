package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// awaitPause is the wait between two looks at a MySQL that is not there yet.
const awaitPause = 500 * time.Millisecond

// await waits until MySQL answers, and refuses what waiting cannot cure: a schema or a setting that does not fit, a
// password.
func (w *engine) await(ctx context.Context) error {
	for {
		err := w.check(ctx)
		if err == nil || errors.Is(err, schema.Err) || store.IsRefusal(err) {
			return err
		}
		w.health.down(err)
		if err := sleep.For(ctx, awaitPause); err != nil {
			return err
		}
	}
}

// check asks MySQL whether it is fit for a worker.
func (w *engine) check(ctx context.Context) error {
	if err := w.store.Ping(ctx); err != nil {
		return err
	}
	if err := schema.Check(ctx, w.store.DB()); err != nil {
		return err
	}
	return w.store.Check(ctx)
}
