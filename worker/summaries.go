package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// summarySchedule is how often the journal is checked for batches without a summary. A run
// summarizes all of them, so it need not be more frequent.
const summarySchedule = "@every 10s"

// summaryRest is for how long a worker rests after a summary, as a multiple of the time that the
// summary took: a worker that is busy with rows shares its processor with it.
const summaryRest = 3

// A summariser summarizes the journal. Not safe for concurrent use: cron runs one task at a time.
type summariser struct {
	summaries *store.Summaries
	inOutage  func() bool
	log       *slog.Logger
	failed    bool // logged
}

// run summarizes the journal, block by block, until less than a block is left.
func (s *summariser) run(ctx context.Context) { s.all(ctx, summaryRest) }

// all rests after each block, for rest times as long as the block took.
func (s *summariser) all(ctx context.Context, rest time.Duration) {
	for {
		began := time.Now()
		n, err := s.summaries.Summarise(ctx)
		s.note(ctx, err)
		if n == 0 || err != nil {
			return
		}
		if err := sleep.For(ctx, rest*time.Since(began)); err != nil {
			return
		}
	}
}

// note logs errors once. The loop logs outages.
func (s *summariser) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || err != nil && s.inOutage():
	case err != nil && !s.failed:
		s.failed = true
		s.log.Warn("the journal cannot be summarized, and searches of it are slow; trying again", "error", err)
	case err == nil && s.failed:
		s.failed = false
		s.log.Info("the journal is summarized again")
	}
}
