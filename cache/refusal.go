package cache

import (
	"context"
	"log/slog"
	"time"
)

// A refusal records that Redis refuses reports. One goroutine uses it.
type refusal struct {
	logger  *slog.Logger
	subject string    // what is reported, in the plural
	rule    string    // what the account needs
	refused time.Time // when Redis last refused a report; zero: not since it took one
}

// lasts reports whether no report should be sent: each refusal creates entries in the ACL log of
// Redis.
func (r *refusal) lasts() bool { return !r.refused.IsZero() && time.Since(r.refused) < reportPause }

// note logs, once, that Redis refuses reports, and that it accepts them again. Outages are logged
// elsewhere.
func (r *refusal) note(err error) {
	switch {
	case err == nil && !r.refused.IsZero():
		r.refused = time.Time{}
		r.logger.LogAttrs(context.Background(), slog.LevelInfo, r.subject+" are reported again")
	case isReply(err) && classify(err) == nil:
		if r.refused.IsZero() {
			r.logger.LogAttrs(context.Background(), slog.LevelWarn, r.subject+" are not reported: Redis refuses; an account needs "+r.rule, slog.Any("error", err))
		}
		r.refused = time.Now()
	}
}
