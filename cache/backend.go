package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/protocol"
)

// A backend sends commands to Redis: each within a time, and none while Redis is known to be away.
type backend struct {
	client  redis.UniversalClient // nil for none
	timeout time.Duration
	// heeds says that the client ends a command when its context ends. Others are left behind instead.
	heeds   bool
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	replica replica
	last    atomic.Pointer[error]
	news    news // of the breaker
	silence silence
	writes  writes
	clock   clock
	alive   *aliveCheck
	probe   string // what the write probe unlinks
	hooks   Hooks
	logger  *slog.Logger
}

func newBackend(config Config) *backend {
	b := &backend{client: config.Redis, timeout: config.Timeout, hooks: config.Hooks, logger: config.Logger}
	b.probe, _ = protocol.LeaseKey(strings.NewReplacer("{", "", "}", "").Replace(config.Prefix) + "unstale:probe")
	b.heeds, _ = redisclient.EndsCalls(config.Redis)
	b.clock.keeper, _ = config.Redis.(timekeeper)
	b.clock.start()
	b.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "redis",
		Timeout:     config.Pause,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= config.Failures },
		IsSuccessful: func(err error) bool {
			return classify(err) == nil || errors.Is(err, ErrRedisOutOfMemory)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) || errors.Is(err, errLeft) },
		OnStateChange: func(_ string, from, to gobreaker.State) { // under the breaker's lock
			switch to {
			case gobreaker.StateOpen:
				if from == gobreaker.StateClosed {
					err := b.lastError()
					b.news.add(func() {
						config.Logger.LogAttrs(context.Background(), slog.LevelWarn, "Redis is away: every call loads", slog.Any("error", err))
					})
				}
			case gobreaker.StateClosed:
				b.news.add(func() { config.Logger.LogAttrs(context.Background(), slog.LevelInfo, "Redis is back") })
			}
		},
	})
	return b
}

// news are told to the log in the order in which they came, and under no lock: a handler of the log may take its time, or ask
// the Cache how it is.
type news struct {
	some    atomic.Bool // whether there is anything to tell
	mu      sync.Mutex
	untold  []func()
	telling bool
}

func (n *news) add(tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.untold = append(n.untold, tell)
	n.some.Store(true)
}

// tell tells what there is, unless another call does: also one further up, whose handler uses the Cache.
func (n *news) tell() {
	for n.some.Load() {
		tell := n.next()
		if tell == nil {
			return
		}
		func() {
			defer n.told() // also where the handler panics
			tell()
		}()
	}
}

// next takes the first of the news, unless one is being told.
func (n *news) next() (tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.telling || len(n.untold) == 0 {
		return nil
	}
	tell, n.untold, n.telling = n.untold[0], n.untold[1:], true
	return tell
}

func (n *news) told() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.telling = false
	n.some.Store(len(n.untold) > 0)
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
	case b.replica.suspected():
		return errReplica
	}
	return nil
}

// An unsent is why a command was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// send calls f, which sends one command or pipeline. The error is nil, redis.Nil, a refusal, a fault as classify names it,
// or the caller's context's; an unsent if f was not called.
func send[R any](ctx context.Context, b *backend, verb string, f func(context.Context) (R, error)) (r R, err error) {
	began := time.Now()
	switch {
	case b.client == nil:
		return r, unsent{ErrNoRedis}
	case ctx.Err() != nil:
		return r, unsent{ctx.Err()}
	case b.replica.pauses(began):
		return r, unsent{errReplica}
	}
	done, err := b.breaker.Allow()
	if err != nil {
		return r, unsent{fmt.Errorf("%w: %w", ErrRedisConnection, err)}
	}
	counts := errEnded // where a hook of the client panics or ends the goroutine
	defer func() {
		done(counts)
		b.news.tell()
	}()
	inner, ended := begin(ctx, b.hooks.Redis, verb)
	r, err = within(inner, b, f)
	end(ended, err)
	fault := classify(err)
	if parent := ctx.Err(); parent != nil && fault != nil {
		counts = b.left(began, parent)
		return r, parent
	}
	if fault == nil {
		b.silence.end()
	} else {
		err = fault
		b.last.Store(&err)
		if strings.Contains(err.Error(), "READONLY") {
			b.replica.found(b.logger)
		}
	}
	counts = err
	return r, err
}

// errEnded is what counts of a command that came to no end.
var errEnded = fmt.Errorf("%w: the command came to no end", ErrRedisConnection)

// left is what counts of a command that was sent at began and whose caller has left before an answer came.
func (b *backend) left(began time.Time, why error) error {
	if b.silence.lasts(began, time.Now()) < b.timeout {
		return context.Canceled // one caller's time was short, which says nothing about Redis
	}
	err := fmt.Errorf("%w: its callers have left: %v", ErrRedisTimeout, why) // and no context.Canceled, which is excluded
	b.last.Store(&err)
	return err
}

// writes remember why Redis refuses to store anything, until it does so.
type writes struct{ refused atomic.Pointer[error] }

// refusals begin the replies of a server that serves reads, and stores nothing for this reader. The last one is that of Redis
// 7.0, which does not name the right.
var refusals = []string{"NOPERM", "OOM", "MISCONF", "unknown command", "ACL failure in script", "The user executing the script"}

// note takes note of what came of a script that writes: whether it has written, or the error.
func (w *writes) note(wrote bool, err error) {
	switch {
	case err == nil && (!wrote || w.refused.Load() == nil):
	case err == nil:
		w.refused.Store(nil)
	case slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }):
		w.refuse(err)
	}
}

// refuse is a function of its own, so that note makes no room for an error that there seldom is.
func (w *writes) refuse(err error) {
	if fault := classify(err); fault != nil {
		err = fault
	}
	err = fmt.Errorf("nothing is stored: %w", err)
	w.refused.Store(&err)
}

// healthy returns why nothing is stored, or nil.
func (w *writes) healthy() error { return w.since(nil) }

// since is healthy, but for what was refused before and not again since.
func (w *writes) since(before *error) error {
	if err := w.refused.Load(); err != nil && err != before {
		return *err
	}
	return nil
}

// A silence adds up for how long Redis has been asked without an answer by callers who have left: each of them may have had
// less time than the timeout, but a Redis that answers none of them is away all the same.
type silence struct {
	some   atomic.Bool // whether there is anything to forget
	mu     sync.Mutex
	waited time.Duration
	until  time.Time // of the latest one
}

// lasts adds the time of a command, as far as no other one has waited then, and returns the sum.
func (s *silence) lasts(from, until time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.Before(s.until) {
		from = s.until
	}
	s.waited += max(until.Sub(from), 0)
	s.until = until
	s.some.Store(true)
	return s.waited
}

// end is called with each answer.
func (s *silence) end() {
	if !s.some.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.some.Store(false)
	s.waited, s.until = 0, time.Now()
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

// alone reports whether the next command may be sent without a pipeline.
func (b *backend) alone() bool {
	return !b.clock.due() && !b.alive.due(time.Now()) && !b.replica.suspected()
}

// pipelined sends a pipeline, and with it TIME if that is due, the question of an aliveCheck, and a write
// probe if the server may be a replica. The error is errLeft if workers no longer write to the server that
// answered, and the server's if it refuses the probe.
func (b *backend) pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	sent := time.Now()
	asks, due := b.alive.due(sent), b.clock.due()
	probes := b.replica.suspected() || due && !b.alive.seen.Load()
	if !asks && !due && !probes {
		return b.client.Pipelined(ctx, f)
	}
	var own int
	var q question
	var now *redis.TimeCmd
	cmds, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if err := f(p); err != nil {
			return err
		}
		own = p.Len()
		if asks {
			q = b.alive.ask(ctx, p, due)
		} else if due {
			now = p.Time(ctx)
		}
		if probes {
			p.Unlink(ctx, b.probe) // the write probe: a replica refuses it
		}
		return nil
	})
	if len(cmds) <= own { // f failed, or a hook of the client changed the pipeline
		return cmds, err
	}
	if now != nil && now.Err() == nil {
		b.clock.heard(now.Val().UnixMicro(), sent)
	}
	if asks {
		if left := b.alive.answered(ctx, q); left != nil {
			return cmds[:own], left
		}
	}
	if probes {
		if probe := cmds[len(cmds)-1]; redis.HasErrorPrefix(probe.Err(), "READONLY") {
			return cmds[:own], probe.Err()
		}
		b.replica.accepted(b.logger)
	}
	return cmds[:own], firstError(cmds[:own])
}

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// A call is one run of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// run sends scripts in one pipeline, with the stamps of tags after them, and sends those again in full that the server has
// not seen before. The caller looks at every reply; the error is a fault as classify names it, and there is a reply or an
// error of its own for each script then too.
func (b *backend) run(ctx context.Context, calls []call, tags []string) ([]*redis.Cmd, map[string]string, error) {
	if len(calls) == 1 && len(tags) == 0 && !b.alive.due(time.Now()) && !b.replica.suspected() {
		cmd := calls[0].script.Run(ctx, b.client, calls[0].keys, calls[0].args...)
		return []*redis.Cmd{cmd}, nil, classify(cmd.Err())
	}
	cmds := make([]*redis.Cmd, len(calls))
	all, err := b.pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
		}
		readStamps(ctx, p, tags)
		return nil
	})
	if err = classify(err); err != nil {
		return cmds, nil, err
	}
	if slices.ContainsFunc(cmds, unknownScript) {
		_, err = b.pipelined(ctx, func(p redis.Pipeliner) error {
			for i, c := range calls {
				if unknownScript(cmds[i]) {
					cmds[i] = c.script.Eval(ctx, p, c.keys, c.args...)
				}
			}
			return nil
		})
		if errors.Is(err, errLeft) {
			return cmds, nil, err
		}
	}
	for _, cmd := range cmds {
		if err := classify(cmd.Err()); err != nil {
			return cmds, nil, err
		}
	}
	stamps, err := stampsRead(tags, all[len(calls):])
	return cmds, stamps, err
}

func unknownScript(cmd *redis.Cmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

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
