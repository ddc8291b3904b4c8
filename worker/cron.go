package worker

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/robfig/cron/v3"
)

var schedules = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// A cronJob is a task of maintenance.
type cronJob struct {
	schedule string
	writes   bool // to MySQL
	do       func(context.Context)
}

// startCron schedules jobs. The poll loop has separate timing. While a COMMIT hangs, as hung
// reports, no job writes.
func startCron(ctx context.Context, log *slog.Logger, hung func() error, jobs []cronJob) (*cron.Cron, error) {
	logger := cronLogger{log}
	// Recover is innermost: outside SkipIfStillRunning, a panic would leave its job "running"
	// forever.
	c := cron.New(cron.WithParser(schedules), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	for _, job := range jobs {
		do := func() {
			if !job.writes || hung() == nil {
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
