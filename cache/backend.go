package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/unstale/unstale/protocol"
)

// replicaPause is for how long a server is left alone that answered READONLY.
const replicaPause = time.Second

// A backend sends commands to Redis: each within a time, and none while Redis is known to be away.
type backend struct {
	client  redis.UniversalClient // nil for none
	timeout time.Duration
	// heeds says that the client ends a command when its context ends. Others are left behind instead.
	heeds   bool
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	replica atomic.Int64 // until when the server counts as a replica, in nanoseconds
	last    atomic.Pointer[error]
	clock   clock
	probe   string // what the write probe unlinks
	hooks   Hooks
}

func newBackend(config Config) *backend {
	b := &backend{client: config.Redis, timeout: config.Timeout, hooks: config.Hooks}
	b.probe, _ = protocol.LeaseKey(strings.NewReplacer("{", "", "}", "").Replace(config.Prefix) + "unstale:probe")
	switch client := config.Redis.(type) {
	case interface{ Options() *redis.Options }:
		b.heeds = client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		b.heeds = client.Options().ContextTimeoutEnabled
	}
	b.clock.keeper, _ = config.Redis.(timekeeper)
	b.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "redis",
		Timeout:     config.Pause,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= config.Failures },
		IsSuccessful: func(err error) bool {
			return classify(err) == nil || errors.Is(err, ErrRedisOutOfMemory)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				if from == gobreaker.StateClosed {
					config.Logger.LogAttrs(context.Background(), slog.LevelWarn, "Redis is away: every call loads", slog.Any("error", b.lastError()))
				}
			case gobreaker.StateClosed:
				config.Logger.LogAttrs(context.Background(), slog.LevelInfo, "Redis is back")
			}
		},
	})
	return b
}

func (b *backend) lastError() error {
	if p := b.last.Load(); p != nil {
		return *p
	}
	return nil
}

// healthy returns why nothing is sent, or nil.
func (b *backend) healthy() error {
	switch {
	case b.client == nil:
		return ErrNoRedis
	case b.breaker.State() != gobreaker.StateClosed:
		return fmt.Errorf("%w: %w", ErrRedisConnection, b.lastError())
	case time.Now().UnixNano() < b.replica.Load():
		return fmt.Errorf("%w: the server is a replica", ErrRedisConnection)
	}
	return nil
}

// send calls f, which sends one command or pipeline. The error is nil, redis.Nil, a refusal, a fault as classify names it,
// or the caller's context's.
func send[R any](ctx context.Context, b *backend, verb string, f func(context.Context) (R, error)) (r R, err error) {
	if b.client == nil {
		return r, ErrNoRedis
	}
	if time.Now().UnixNano() < b.replica.Load() {
		return r, fmt.Errorf("%w: the server is a replica", ErrRedisConnection)
	}
	done, err := b.breaker.Allow()
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrRedisConnection, err)
	}
	inner, ended := begin(ctx, b.hooks.Redis, verb)
	r, err = within(inner, b, f)
	end(ended, err)
	if parent := ctx.Err(); parent != nil && classify(err) != nil {
		done(context.Canceled) // the caller's time was short, which says nothing about Redis
		return r, parent
	}
	if fault := classify(err); fault != nil {
		err = fault
		b.last.Store(&err)
		if strings.Contains(err.Error(), "READONLY") {
			b.replica.Store(time.Now().Add(replicaPause).UnixNano())
		}
	}
	done(err)
	return r, err
}

// within calls f and gives it up after the timeout.
func within[R any](ctx context.Context, b *backend, f func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	if b.heeds {
		defer cancel()
		return f(ctx)
	}
	type answer struct {
		r   R
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		defer cancel()
		r, err := f(ctx)
		answers <- answer{r, err}
	}()
	select {
	case a := <-answers:
		return a.r, a.err
	case <-ctx.Done():
		select {
		case a := <-answers:
			return a.r, a.err
		default:
		}
		var none R
		return none, ctx.Err()
	}
}

// A call is one run of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// run sends scripts in one pipeline, with the stamps of tags after them, and sends those again in full that the server has
// not seen before. The caller looks at every reply; the error is a fault as classify names it.
func (b *backend) run(ctx context.Context, calls []call, tags []string) ([]*redis.Cmd, map[string]string, error) {
	if len(calls) == 1 && len(tags) == 0 {
		cmd := calls[0].script.Run(ctx, b.client, calls[0].keys, calls[0].args...)
		return []*redis.Cmd{cmd}, nil, classify(cmd.Err())
	}
	cmds := make([]*redis.Cmd, len(calls))
	all, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
		}
		readStamps(ctx, p, tags)
		return nil
	})
	if err = classify(err); err != nil {
		return nil, nil, err
	}
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = c.script.Eval(ctx, b.client, c.keys, c.args...)
		}
		if err := classify(cmds[i].Err()); err != nil {
			return nil, nil, err
		}
	}
	stamps, err := stampsRead(tags, all[len(calls):])
	return cmds, stamps, err
}

// readStamps adds to a pipeline what reads the stamps of tags without making any.
func readStamps(ctx context.Context, p redis.Pipeliner, tags []string) {
	for _, tag := range tags {
		p.Get(ctx, protocol.StampKey(tag))
	}
}

// stampsRead are the answers to readStamps: "" for a stamp that is missing or no text.
func stampsRead(tags []string, cmds []redis.Cmder) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	stamps := make(map[string]string, len(tags))
	for i, tag := range tags {
		if err := classify(cmds[i].Err()); err != nil {
			return nil, err
		}
		stamps[tag] = cmds[i].(*redis.StringCmd).Val()
	}
	return stamps, nil
}
