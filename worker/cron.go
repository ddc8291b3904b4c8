package worker

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/robfig/cron/v3"
)

// journalChunk is how many journal rows one statement deletes: small enough to finish in milliseconds.
const journalChunk = 500

var schedules = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// startCron schedules maintenance: the gauges, the journal's retention and its summaries, and the retention of workers'
// notes and of the rows of locks. The poll loop has a timing of its own. While a COMMIT hangs, no job writes.
func (w *engine) startCron(ctx context.Context) (*cron.Cron, error) {
	logger := cronLogger{w.log}
	// Recover is innermost: outside of SkipIfStillRunning a panic would leave its job "running" for ever.
	c := cron.New(cron.WithParser(schedules), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	for _, job := range []struct {
		schedule string
		writes   bool
		do       func(context.Context)
	}{
		{w.cfg.GaugeSchedule, false, w.readGauges},
		{w.cfg.RetentionSchedule, true, w.expireJournal},
		{summarySchedule, true, w.summarise},
		{w.cfg.RetentionSchedule, true, w.forgetWorkers},
		{w.cfg.RetentionSchedule, true, w.expireLocks},
	} {
		do := func() {
			if !job.writes || w.store.Hung() == nil {
				job.do(ctx)
			}
		}
		if _, err := c.AddFunc(job.schedule, do); err != nil {
			return nil, fmt.Errorf("schedule %q: %w", job.schedule, err)
		}
	}
	c.Start()
	return c, nil
}

func (w *engine) expireJournal(ctx context.Context) {
	n, err := w.store.ExpireJournal(ctx, w.cfg.JournalRetention, journalChunk)
	switch {
	case err != nil && ctx.Err() == nil:
		w.log.Warn("journal rows stay longer than their retention; tried again on schedule", "error", err)
	case n > 0:
		w.log.Debug("old journal rows deleted", "rows", n)
	}
	if err := w.store.ExpireSummaries(ctx); err != nil && ctx.Err() == nil {
		w.log.Warn("summaries of the journal stay longer than it does; tried again on schedule", "error", err)
	}
}

// cronLogger passes cron's errors on; its schedule chatter is for debugging.
type cronLogger struct{ log *slog.Logger }

// Info implements cron.Logger.
func (l cronLogger) Info(msg string, keysAndValues ...any) {
	l.log.Debug("cron: "+msg, keysAndValues...)
}

// Error implements cron.Logger.
func (l cronLogger) Error(err error, msg string, keysAndValues ...any) {
	l.log.Error("cron: "+msg, append(keysAndValues, "error", err)...)
}
