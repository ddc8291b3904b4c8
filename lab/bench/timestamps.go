package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// timestamps are the times of the commits of a mode. Each commit makes its own key stale. The type
// is a hook of the Redis client that records the time of the reply to an UNLINK. It is the same for
// unstale and for the floor, without a subscriber that the scheduler could delay. Safe for
// concurrent use.
type timestamps struct {
	began time.Time
	of    []commitTimes
	news  chan struct{} // something was unlinked; capacity 1, sent to without waiting
}

// commitTimes are in nanoseconds since the mode began; 0 is not yet.
type commitTimes struct {
	sent      atomic.Int64 // COMMIT
	committed atomic.Int64 // its reply was in
	unlinked  atomic.Int64 // the reply to the key's first UNLINK was in
}

func newTimestamps(commits int) *timestamps {
	return &timestamps{began: time.Now(), of: make([]commitTimes, commits), news: make(chan struct{}, 1)}
}

func (m *timestamps) now() int64 { return time.Since(m.began).Nanoseconds() }

// codePrefix begins the key of a coupon; see couponMap.
const codePrefix = "zahraah:prod:coupon:code-"

// ProcessPipelineHook implements redis.Hook: unstale and the floor unlink in pipelines.
func (m *timestamps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		now := m.now()
		for _, c := range commands {
			if c.Name() == "unlink" && c.Err() == nil {
				m.unlinked(c.Args()[1:], now)
			}
		}
		return err
	}
}

// DialHook implements redis.Hook.
func (m *timestamps) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (m *timestamps) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (m *timestamps) unlinked(names []any, now int64) {
	for _, name := range names {
		code, isCoupon := strings.CutPrefix(fmt.Sprint(name), codePrefix) // and no lease
		if i, err := strconv.Atoi(code); isCoupon && err == nil && i < len(m.of) {
			m.of[i].unlinked.CompareAndSwap(0, now)
		}
	}
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// await waits until the keys of all commits from one to before another are unlinked.
func (m *timestamps) await(ctx context.Context, from, to int) error {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("a commit's key was not unlinked within %s", patience))
	defer cancel()
	for i := from; i < to; {
		if m.of[i].unlinked.Load() != 0 {
			i++
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.news:
		}
	}
	return nil
}

// latencies returns microseconds to the UNLINK, from the reply to COMMIT and from when COMMIT was
// sent. The former can be negative: the row is visible slightly before the application has the
// reply.
func (m *timestamps) latencies(from, to int) (sinceReply, sinceSent []float64) {
	for i := from; i < to; i++ {
		at := &m.of[i]
		unlinked := at.unlinked.Load()
		sinceReply = append(sinceReply, float64(unlinked-at.committed.Load())/1e3)
		sinceSent = append(sinceSent, float64(unlinked-at.sent.Load())/1e3)
	}
	return sinceReply, sinceSent
}
