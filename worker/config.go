package worker

import (
	"fmt"
	"time"
)

// Config says how a [Worker] works. The zero value of a field means its default.
type Config struct {
	// BatchRows is how many rows one claim takes at most. More rows cost less each, and hold their locks
	// longer. 1 to 10,000. Default 1,000.
	BatchRows int
	// BatchKeys bounds the keys of one batch; rows beyond it wait for the next, but one row always goes.
	// 1 to 1,000,000. Default 50,000.
	BatchKeys int
	// BatchBytes bounds the parameters that one claim fetches. At least 64 KiB. Default 8 MiB.
	BatchBytes int
	// IdleInterval is the longest wait between two polls, and so the latency of a change without a wake-up. A worker waits
	// that long while the outbox is empty or the load is light, so that a pass carries several commits; at a heavier load
	// it polls more often, down to every 5 ms. Waits are longer by up to a tenth, at random. 1 ms to 1 h. Default 50 ms.
	IdleInterval time.Duration
	// MaxAttempts is how often a row fails by its own fault before it is buried. 1 to 100. Default 8.
	MaxAttempts int
	// RetryDelay is the wait after a row's first failure; it doubles with each one, jittered, up to 5 min.
	// 1 ms to 5 min. Default 1 s.
	RetryDelay time.Duration
	// JournalRetention is how long the journal is kept. At least 1 min. Default 24 h.
	JournalRetention time.Duration
	// GaugeSchedule and RetentionSchedule are cron specs (robfig/cron, five fields or "@every"), for reading
	// the gauges and for deleting old journal rows. Defaults "@every 10s" and "*/5 * * * *": by the clock, so that
	// processes that live for less than five minutes do it too.
	GaugeSchedule     string
	RetentionSchedule string
	// WakeChannel is where applications may PUBLISH after a commit to be served at once. It is only a hint.
	// "-" turns it off. Default "cache:outbox:wake".
	WakeChannel string
	// WakeInterval is the shortest time between the beginnings of two passes that hints cause: a hint that comes sooner
	// waits, and what comes meanwhile is carried together. 0 to 1 min. Default 0: each hint makes a pass at once.
	WakeInterval time.Duration
}

const (
	longestRetry = 5 * time.Minute
	noWake       = "-"
)

// WithDefaults returns a copy in which zero values are replaced.
func (c Config) WithDefaults() Config {
	orInt(&c.BatchRows, 1_000)
	orInt(&c.BatchKeys, 50_000)
	orInt(&c.BatchBytes, 8<<20)
	orInt(&c.IdleInterval, 50*time.Millisecond)
	orInt(&c.MaxAttempts, 8)
	orInt(&c.RetryDelay, time.Second)
	orInt(&c.JournalRetention, 24*time.Hour)
	orText(&c.GaugeSchedule, "@every 10s")
	orText(&c.RetentionSchedule, "*/5 * * * *")
	orText(&c.WakeChannel, "cache:outbox:wake")
	return c
}

func orInt[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func orText(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// Validate names the field, its value and the rule that it breaks.
func (c Config) Validate() error {
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"batch rows", c.BatchRows, 1, 10_000},
		{"batch keys", c.BatchKeys, 1, 1_000_000},
		{"batch bytes", c.BatchBytes, 64 << 10, 1 << 30},
		{"max attempts", c.MaxAttempts, 1, 100},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%s %d: wanted %d to %d", f.name, f.value, f.min, f.max)
		}
	}
	for _, f := range []struct {
		name            string
		value, min, max time.Duration
	}{
		{"idle interval", c.IdleInterval, time.Millisecond, time.Hour},
		{"wake interval", c.WakeInterval, 0, time.Minute},
		{"retry delay", c.RetryDelay, time.Millisecond, longestRetry},
		{"journal retention", c.JournalRetention, time.Minute, 10 * 365 * 24 * time.Hour},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%s %s: wanted %s to %s", f.name, f.value, f.min, f.max)
		}
	}
	for name, spec := range map[string]string{"gauge schedule": c.GaugeSchedule, "retention schedule": c.RetentionSchedule} {
		if _, err := schedules.Parse(spec); err != nil {
			return fmt.Errorf("%s %q: %w", name, spec, err)
		}
	}
	return nil
}
