package worker

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// summarySchedule is how often the journal is looked at for batches that a summary has not. What it finds is summarised
// as far as it goes, so it need not be more often.
const summarySchedule = "@every 10s"

// summaryRest is for how long a worker rests after a summary, as a multiple of the time that the summary took: a worker
// that is busy with rows shares its processor with it.
const summaryRest = 3

// summarise summarises the journal, block by block, until what is left is less than a block.
func (w *engine) summarise(ctx context.Context) { w.summariseAll(ctx, summaryRest) }

// summariseAll rests after each block, for rest times as long as the block took.
func (w *engine) summariseAll(ctx context.Context, rest time.Duration) {
	for {
		began := time.Now()
		n, err := w.store.Summarise(ctx)
		w.noteSummaries(ctx, err)
		if n == 0 || err != nil {
			return
		}
		if err := sleep.For(ctx, rest*time.Since(began)); err != nil {
			return
		}
	}
}

// noteSummaries tells of errors once. The loop tells of outages.
func (w *engine) noteSummaries(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || err != nil && w.health.inOutage():
	case err != nil && !w.summaryFailed:
		w.summaryFailed = true
		w.log.Warn("the journal cannot be summarised, and searches of it are slow; trying again", "error", err)
	case err == nil && w.summaryFailed:
		w.summaryFailed = false
		w.log.Info("the journal is summarised again")
	}
}
