package cache_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

// An asking handler calls f for each line of the log.
type askingHandler struct {
	slog.Handler
	f func(message string)
}

func (h askingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h askingHandler) Handle(_ context.Context, r slog.Record) error {
	h.f(r.Message)
	return nil
}

// A log handler can use the Cache, even for a record about Redis.
func TestLogHandlerUsesTheCache(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	client.AddHook(awayHook{})
	db := &database{value: "old"}
	var c *cache.Cache
	var lines []string
	c = newCache(t, cache.Config{Redis: client, Failures: 1, Logger: slog.New(askingHandler{slog.DiscardHandler, func(message string) {
		lines = append(lines, message)
		wantError(t, "Healthy", c.Healthy(), cache.ErrRedisConnection)
		wantFetched(t, "the handler", c, "other", db.read, "old")
	}})})
	answers := fetchBeside(t, c, "k", db.read, nil)
	select {
	case got := <-answers:
		if got.err != nil || got.value != "old" {
			t.Errorf("got %q, %v", got.value, got.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the caller waits for its own handler")
	}
	if want := []string{"Redis is away: every call loads"}; !slices.Equal(lines, want) {
		t.Errorf("logged %q, wanted %q", lines, want)
	}
}

// An awayHook makes Redis unavailable for a client.
type awayHook struct{}

var errAway = errors.New("connection refused")

func (awayHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (awayHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(errAway)
		return errAway
	}
}

func (awayHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(errAway)
		}
		return errAway
	}
}
