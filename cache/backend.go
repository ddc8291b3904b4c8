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
	// heeds reports that the client ends a command when its context ends. Other clients leave the
	// command running.
	heeds   bool
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	replica replica
	last    atomic.Pointer[error]
	turns   turns
	news    news // of the breaker
	silence silence
	stalls  stallWatch
	stalled *atomic.Uint64 // commands that timed out in a stall
	told    complaints     // of those
	writes  writes
	clock   clock
	sizes   sizes
	alive   *aliveCheck
	reads   *readQueues
	// answered reports that Redis has answered a command, so a client of a Cluster knows its slots.
	answered atomic.Bool
	probe    string // what the write probe unlinks
	hooks    Hooks
	logger   *slog.Logger
}

func newBackend(config Config) *backend {
	b := &backend{client: config.Redis, timeout: config.Timeout, hooks: config.Hooks, logger: config.Logger}
	b.probe, _ = protocol.LeaseKey(strings.NewReplacer("{", "", "}", "").Replace(config.Prefix) + "unstale:probe")
	b.heeds, _ = redisclient.EndsCalls(config.Redis)
	if size := redisclient.PoolSize(config.Redis); size > 0 {
		b.turns.free = make(chan struct{}, size)
	}
	b.clock.keeper, _ = config.Redis.(timekeeper)
	b.clock.start()
	b.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "redis",
		Timeout:     config.Pause,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= config.Failures },
		IsSuccessful: func(err error) bool {
			return classify(err) == nil || errors.Is(err, ErrRedisOutOfMemory)
		},
		IsExcluded: func(err error) bool {
			return errors.Is(err, context.Canceled) || errors.Is(err, errLeft) || errors.Is(err, errStalled)
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { // under the breaker's lock
			switch {
			case to == gobreaker.StateOpen && from == gobreaker.StateClosed:
				err := b.lastError()
				b.news.queue(func() {
					config.Logger.LogAttrs(context.Background(), slog.LevelWarn, "Redis is away: every call loads", slog.Any("error", err))
				})
			case to == gobreaker.StateClosed:
				b.news.queue(func() { config.Logger.LogAttrs(context.Background(), slog.LevelInfo, "Redis is back") })
			}
		},
	})
	return b
}

// news are log records in the order of their events. They are logged without a lock: a log handler
// may be slow, or call methods of the Cache.
type news struct {
	some    atomic.Bool // whether there is anything to tell
	mu      sync.Mutex
	untold  []func()
	telling sync.Mutex
}

func (n *news) queue(tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.untold = append(n.untold, tell)
	n.some.Store(true)
}

// tell logs the pending records, unless another call does so. That can be a call further up the
// stack, whose handler uses the Cache.
func (n *news) tell() {
	for n.some.Load() && n.telling.TryLock() {
		func() {
			defer n.telling.Unlock() // even if the handler panics
			if tell := n.next(); tell != nil {
				tell()
			}
		}()
	}
}

// next takes the first of the news, or returns nil.
func (n *news) next() (tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.untold) > 0 {
		tell, n.untold = n.untold[0], n.untold[1:]
	}
	n.some.Store(len(n.untold) > 0)
	return tell
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

// send calls f, which sends one command or pipeline. The error is nil, redis.Nil, a refusal, a
// fault as classify names it, or the caller's context's; an unsent if f was not called.
func send[R any](ctx context.Context, b *backend, verb string, f func(context.Context) (R, error)) (r R, err error) {
	switch {
	case b.client == nil:
		return r, unsent{ErrNoRedis}
	case ctx.Err() != nil:
		return r, unsent{ctx.Err()}
	}
	defer b.news.tell() // without a turn: the log handler may use the Cache
	held, waited, err := b.turns.take(ctx, b)
	if err != nil {
		return r, unsent{err}
	}
	if held {
		defer func() { <-b.turns.free }()
	}
	began := time.Now()
	if b.replica.pauses(began) {
		return r, unsent{errReplica}
	}
	done, err := b.breaker.Allow()
	if err != nil {
		return r, unsent{fmt.Errorf("%w: %w", ErrRedisConnection, err)}
	}
	b.stalls.commandBegan(began)
	defer b.stalls.commandEnded()
	counts := errEnded // where a hook of the client panics or ends the goroutine
	defer func() { done(counts) }()
	inner, ended := beginHook(ctx, b.hooks.Redis, verb)
	r, err = within(inner, b, f)
	endHook(ended, err)
	fault := classify(err)
	if parent := ctx.Err(); parent != nil && fault != nil {
		counts = b.left(began, parent)
		return r, parent
	}
	if fault == nil {
		if !b.answered.Load() {
			b.answered.Store(true)
		}
		b.silence.answered()
		b.turns.answered(b, began, waited)
	} else if err = b.blame(began, fault); !errors.Is(err, errStalled) {
		b.last.Store(&err)
		if strings.Contains(err.Error(), "READONLY") {
			b.replica.found(b.logger)
		}
	}
	if counts = err; fault != nil && failedBefore(ctx) {
		counts = context.Canceled
	}
	return r, err
}

// errEnded is the fault of a command that did not end.
var errEnded = fmt.Errorf("%w: the command came to no end", ErrRedisConnection)

// blame returns the fault of a command that was sent at began. It matches errStalled, which does
// not count, if this process did not run meanwhile: an answer may have come then. If this process
// has run for a timeout without any answer, the fault counts even so.
func (b *backend) blame(began time.Time, fault error) error {
	if !errors.Is(fault, ErrRedisTimeout) {
		return fault
	}
	now := time.Now()
	stalled := b.stalls.stalled(began, now)
	if stalled == 0 || b.silence.lasts(began, now, b.stalls.stalled) >= b.timeout {
		return fault
	}
	b.stalled.Add(1)
	if b.told.due() {
		b.news.queue(func() {
			b.logger.LogAttrs(context.Background(), slog.LevelWarn, "commands to Redis timed out because this process did not run",
				slog.Duration("stalled", stalled), slog.Duration("timeout", b.timeout), slog.String("effect", "their callers load"),
				slog.String("cure", "look for a CPU limit, more processes than CPUs, SIGSTOP or long garbage collection"))
		})
	}
	return fmt.Errorf("%w: %w for %v", fault, errStalled, stalled)
}

// left returns the fault of a command that was sent at began and whose caller has left without an
// answer.
func (b *backend) left(began time.Time, why error) error {
	if b.silence.lasts(began, time.Now(), b.stalls.stalled) < b.timeout {
		return context.Canceled // one caller's time was short, which says nothing about Redis
	}
	// and no context.Canceled, which is excluded
	err := fmt.Errorf("%w: its callers have left: %v", ErrRedisTimeout, why)
	b.last.Store(&err)
	return err
}

// writes remember why Redis refuses to store anything, until it does so.
type writes struct{ refused atomic.Pointer[error] }

// refusals are the prefixes of replies of a server that serves reads but stores nothing for this
// reader. The last one is from Redis 7.0, which does not name the permission.
var refusals = []string{"NOPERM", "OOM", "MISCONF", "unknown command", "ACL failure in script", "The user executing the script"}

// recordReply records the result of a script that writes: whether it has written, or the error.
func (w *writes) recordReply(wrote bool, err error) {
	switch {
	case err == nil && (!wrote || w.refused.Load() == nil):
	case err == nil:
		w.refused.Store(nil)
	case slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }):
		w.refuse(err)
	}
}

// refuse makes the error of refusal. It is a separate function because recordReply then allocates
// nothing unless the error occurs.
func (w *writes) refuse(err error) {
	if fault := classify(err); fault != nil {
		err = fault
	}
	err = fmt.Errorf("nothing is stored: %w", err)
	w.refused.Store(&err)
}

// refusal returns why nothing is stored, or nil.
func (w *writes) refusal() error { return w.since(nil) }

// since is like refusal, without a refusal that came before and did not repeat since.
func (w *writes) since(before *error) error {
	if err := w.refused.Load(); err != nil && err != before {
		return *err
	}
	return nil
}

// A silence adds up how long callers that have left waited for Redis without an answer. Each of
// them may have waited less than the timeout, but a Redis that answers none of them is unavailable.
type silence struct {
	some   atomic.Bool // whether there is anything to reset
	mu     sync.Mutex
	waited time.Duration
	until  time.Time // of the latest one
}

// lasts adds the time of a command, as far as no other one has waited then and the process was not
// stalled, and returns the sum.
func (s *silence) lasts(from, until time.Time, stalled func(from, until time.Time) time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.Before(s.until) {
		from = s.until
	}
	s.waited += max(until.Sub(from)-stalled(from, until), 0)
	s.until = until
	s.some.Store(true)
	return s.waited
}

// answered is called with each answer.
func (s *silence) answered() {
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
	now := time.Now()
	return !b.clock.due() && !b.alive.due(now) && (b.clock.keeper != nil || !b.replica.due(now))
}

// The places of the question of an aliveCheck in a pipeline: in front of reads, since a master may
// become a replica between the two, and behind scripts, since a lease may be too long.
const askFirst, askLast = false, true

// pipelined sends a pipeline. It adds TIME and the question of an aliveCheck if they are due. It
// adds a write probe every 30 s; every second if no worker seems to write to the server; always if
// the server may be a replica. The error is errLeft if workers no longer write to the server that
// answered, and the server's if it refuses the probe.
func (b *backend) pipelined(ctx context.Context, asksLast bool, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	sent := time.Now()
	asks, due := b.alive.due(sent), b.clock.due()
	probes := b.clock.keeper == nil && b.replica.takes(sent)
	if !asks && !due && !probes {
		return b.client.Pipelined(ctx, f)
	}
	var first, end int // of the caller's commands
	var q question
	var now *redis.TimeCmd
	ask := func(p redis.Pipeliner) {
		if asks {
			q = b.alive.addQuestion(ctx, p)
			now = q.time
		} else if due {
			now = p.Time(ctx)
		}
	}
	cmds, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if !asksLast {
			ask(p)
		}
		first = p.Len()
		if err := f(p); err != nil {
			return err
		}
		end = p.Len()
		if asksLast {
			ask(p)
		}
		if probes {
			p.Unlink(ctx, b.probe) // the write probe: a replica refuses it
		}
		return nil
	})
	if end == 0 || len(cmds) < end { // f failed, or a hook of the client changed the pipeline
		return cmds[min(first, len(cmds)):], err
	}
	own := cmds[first:end]
	if asks {
		young, left := b.alive.answered(ctx, q)
		if left != nil {
			return own, left
		}
		if !young {
			b.replica.doubt(sent)
		}
	}
	if due && now.Err() == nil {
		b.clock.heard(now.Val().UnixMicro(), sent)
	}
	if probes {
		switch refused := cmds[len(cmds)-1].Err(); {
		case redis.HasErrorPrefix(refused, "READONLY"):
			return own, refused
		case refused == nil, isReply(refused): // and no fault, which says nothing of the server
			b.replica.accepted(b.logger)
		}
	}
	return own, firstError(own)
}

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// faultsOf returns the error of each command of a pipeline of n, or err for each if none has one:
// nothing is known about any then.
func faultsOf(cmds []redis.Cmder, n int, err error) []error {
	if err != nil && firstError(cmds) == nil {
		return slices.Repeat([]error{err}, n)
	}
	faults := make([]error, len(cmds))
	for i, cmd := range cmds {
		faults[i] = cmd.Err()
	}
	return faults
}

// A call is one run of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// runScripts sends scripts in one pipeline, followed by reads of the versions of tags. It sends
// scripts again in full that the server has not loaded. The caller checks every reply. The error is
// a fault as classify names it; each script has its own reply or error then too.
func (b *backend) runScripts(ctx context.Context, calls []call, tags []string) ([]*redis.Cmd, map[string]string, error) {
	if len(calls) == 1 && len(tags) == 0 && !b.alive.due(time.Now()) && !b.replica.suspected() {
		cmd := calls[0].script.Run(ctx, b.client, calls[0].keys, calls[0].args...)
		return []*redis.Cmd{cmd}, nil, classify(cmd.Err())
	}
	cmds := make([]*redis.Cmd, len(calls))
	all, err := b.pipelined(ctx, askLast, func(p redis.Pipeliner) error {
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
		_, err = b.pipelined(ctx, askLast, func(p redis.Pipeliner) error {
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

// release runs calls that give leases back, in one pipeline.
func (b *backend) release(ctx context.Context, calls []call) error {
	_, err := send(ctx, b, "release", func(ctx context.Context) (struct{}, error) {
		_, _, err := b.runScripts(ctx, calls, nil)
		return struct{}{}, err
	})
	return err
}

func unknownScript(cmd *redis.Cmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

// readStamps adds commands to a pipeline that read the versions of tags without creating them.
func readStamps(ctx context.Context, p redis.Pipeliner, tags []string) {
	for _, tag := range tags {
		p.Get(ctx, protocol.StampKey(tag))
	}
}

// stampsRead returns the answers to readStamps: "" for a tag version that is missing or not a
// string.
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
