package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// journalChunk is how many journal rows one statement deletes: small enough to finish in
// milliseconds.
const journalChunk = 500

// An expiry deletes records that are older than their retention.
type expiry struct {
	retention time.Duration // of the journal
	journal   *store.Journal
	summaries *store.Summaries
	workers   *store.Workers
	stale     *store.StaleEntries
	log       *slog.Logger
}

func (e *expiry) expireJournal(ctx context.Context) {
	n, err := e.journal.ExpireJournal(ctx, e.retention, journalChunk)
	switch {
	case err != nil && ctx.Err() == nil:
		e.log.Warn("journal rows stay longer than their retention; tried again on schedule", "error", err)
	case n > 0:
		e.log.Debug("old journal rows deleted", "rows", n)
	}
	if err := e.summaries.ExpireSummaries(ctx); err != nil && ctx.Err() == nil {
		e.log.Warn("summaries of the journal stay longer than it does; tried again on schedule", "error", err)
	}
}

func (e *expiry) forgetWorkers(ctx context.Context) {
	if err := e.workers.ForgetWorkers(ctx); err != nil && ctx.Err() == nil {
		e.log.Debug("the notes of workers that are gone stay; tried again on schedule", "error", err)
	}
}

func (e *expiry) trimStale(ctx context.Context) {
	if err := e.stale.Trim(ctx); err != nil && ctx.Err() == nil {
		e.log.Debug("old stale entries stay; tried again on schedule", "error", err)
	}
}
