package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/unstale/unstale/protocol"
)

const (
	// unseenPause is the wait between two questions before the first answer with a field.
	unseenPause = time.Second
	// deniedPause is the wait after a refusal. Redis logs each one.
	deniedPause = time.Minute
)

// errLeft rejects an answer. It does not mean that Redis is unavailable.
var errLeft = fmt.Errorf("%w: workers have left the server that answered", ErrRedisConnection)

// An aliveCheck proves that answers come from a server where workers write: see
// [protocol.AliveKey]. Each pipeline asks, because after a switch-over the connections of one pool
// may lead to several servers, and go-redis chooses the connection. Safe for concurrent use.
type aliveCheck struct {
	client  optioned // nil: nothing is asked
	clock   *clock
	sources []string // empty: all
	launch  func(func()) bool
	life    context.Context
	logger  *slog.Logger
	strays  *atomic.Uint64

	seen   atomic.Bool  // a worker has written, here or elsewhere
	found  atomic.Bool  // the latest answer had a field
	asked  atomic.Int64 // when an answer without a field was last asked for, as Unix nanoseconds
	looked atomic.Int64 // when a new connection was last asked before the first field, likewise
	denied atomic.Int64 // until when nothing is asked, likewise
	told   atomic.Bool  // the log reports the refusal
	last   atomic.Pointer[parsed]
	left   atomic.Int64 // when a new connection last led to another server, as Unix nanoseconds

	lease  mapLease
	search search
	wrong  wrongServer
}

// An optioned is a client of one server or of Sentinel. Its options make another client.
type optioned interface {
	Options() *redis.Options
	Pipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

func newAliveCheck(config Config, clock *clock, run *running, counts *counts) *aliveCheck {
	a := &aliveCheck{sources: config.Memory.Sources, clock: clock, launch: run.launch, life: run.life, logger: config.Logger, strays: &counts.strays}
	a.wrong.counts = &counts.elsewhere
	a.lease = mapLease{configured: config.Lease, beats: map[string]int64{}}
	if _, fake := config.Redis.(timekeeper); !fake {
		a.client, _ = config.Redis.(optioned)
	}
	return a
}

// due reports whether the next pipeline asks.
func (a *aliveCheck) due(now time.Time) bool {
	switch {
	case a.client == nil, now.UnixNano() < a.denied.Load():
		return false
	case a.seen.Load():
		return true
	}
	return now.UnixNano()-a.asked.Load() >= int64(unseenPause)
}

// addQuestion adds the question to a pipeline. TIME goes along, because the clocks of servers
// differ, and the client does not know which server will answer.
func (a *aliveCheck) addQuestion(ctx context.Context, p redis.Pipeliner) (q question) {
	if !a.seen.Load() {
		a.asked.Store(time.Now().UnixNano())
	}
	q.time = p.Time(ctx)
	if len(a.sources) == 1 && a.found.Load() {
		q.one = p.HGet(ctx, protocol.AliveKey(""), a.sources[0])
	} else { // which fields there are may change
		q.all = p.HGetAll(ctx, protocol.AliveKey(""))
	}
	return q
}

// A question has the commands that are added to a pipeline.
type question struct {
	time *redis.TimeCmd
	one  *redis.StringCmd
	all  *redis.MapStringStringCmd
}

func (q question) err() error {
	if q.one != nil {
		return q.one.Err()
	}
	return q.all.Err()
}

// answered evaluates the answer to a question. young is false if no worker has written to the
// server in the last 3 s. The error is nil or errLeft.
func (a *aliveCheck) answered(ctx context.Context, q question) (young bool, err error) {
	if err := q.err(); err != nil && !errors.Is(err, redis.Nil) {
		a.refused(err)
		return true, nil // unknown
	}
	got := a.evaluate(q)
	a.found.Store(got.any)
	if got.any {
		a.lease.field(got.lease, a.logger)
	}
	switch {
	case got.young:
		if !a.seen.Load() {
			a.seen.Store(true)
		}
		a.wrong.recordPresence(a)
		return true, nil
	case !a.seen.Load():
		a.probeNew()
	default:
		if err := a.moved(ctx, got.latest); err != nil {
			a.strays.Add(1)
			return false, err
		}
	}
	a.wrong.recordAbsence(a, got)
	return false, nil
}

// An aliveAnswer holds the evaluated fields of one answer.
type aliveAnswer struct {
	any    bool     // it has a field of the sources
	latest int64    // the latest of their times, zero without a field
	young  bool     // and one of them was written in the last 3 s, by the server's clock
	lease  int64    // the shortest one of the sources' maps, in milliseconds; zero: unknown
	others []string // other sources, with young fields
}

// evaluate evaluates the fields.
func (a *aliveCheck) evaluate(q question) (got aliveAnswer) {
	now := a.clock.now() * 1000
	if q.time.Err() == nil {
		now = q.time.Val().UnixMicro()
	}
	fields := map[string]string(nil)
	if q.all != nil {
		fields = q.all.Val()
	} else if q.one.Err() == nil {
		fields = map[string]string{a.sources[0]: q.one.Val()}
	}
	for source, found := range a.parse(fields) {
		young := now-found.Time <= protocol.AliveLife
		if !a.counts(source) {
			if young {
				got.others = append(got.others, source)
			}
			continue
		}
		got.any, got.young, got.latest = true, got.young || young, max(got.latest, found.Time)
		if found.Lease > 0 && (got.lease == 0 || found.Lease < got.lease) {
			got.lease = found.Lease
		}
	}
	return got
}

// counts reports whether source is one of the reader's.
func (a *aliveCheck) counts(source string) bool {
	return len(a.sources) == 0 || slices.Contains(a.sources, source)
}

// parse returns the fields that can be parsed. Most answers equal the previous one.
func (a *aliveCheck) parse(fields map[string]string) map[string]protocol.Alive {
	if last := a.last.Load(); last != nil && maps.Equal(last.fields, fields) {
		return last.alive
	}
	p := &parsed{fields, make(map[string]protocol.Alive, len(fields))}
	for source, text := range fields {
		if found, err := protocol.ParseAlive(text); err == nil {
			p.alive[source] = found
		}
	}
	a.last.Store(p)
	return p.alive
}

// A parsed is the latest answer, which does not change for a second.
type parsed struct {
	fields map[string]string
	alive  map[string]protocol.Alive
}

// refused records that Redis refused a question. The rest of the pipeline is not affected.
func (a *aliveCheck) refused(err error) {
	if !redis.HasErrorPrefix(err, "NOPERM") {
		return
	}
	a.denied.Store(time.Now().Add(deniedPause).UnixNano())
	a.found.Store(false)
	if !a.told.Swap(true) {
		a.logger.LogAttrs(a.life, slog.LevelWarn, "cannot read where workers write: a demoted master goes unnoticed",
			slog.Any("error", err), slog.String("cure", "ACL SETUSER the reader's user with +hget +hgetall +time %R~unstale:alive*"))
	}
}

// heartbeat records one that reports until when its worker counts as one that writes somewhere. One
// goroutine calls it.
func (a *aliveCheck) heartbeat(b *protocol.Beat, until time.Time) {
	if !a.counts(b.Source) {
		return
	}
	if b.Alive {
		a.wrong.heard.Store(&heardWorker{b.Source, until})
		a.seen.Store(true)
	}
	a.lease.beat(b, a.found.Load(), a.logger)
}

// healthy returns an error if workers write elsewhere, or if the map's lease is shorter than the
// configured one.
func (a *aliveCheck) healthy() error {
	return cmp.Or(a.wrong.healthy(a.sources), a.lease.healthy())
}

const (
	// resultLife is the life of a search's result.
	resultLife = time.Second
	// searchLimit bounds a search, and the closing of connections after it.
	searchLimit = time.Second
	// lookPause is the wait between two new connections before the first field.
	lookPause = 3 * time.Second
	// mostClosed bounds how many connections are closed in a row.
	mostClosed = 100
)

// A search finds out what an old answer means: either no worker runs, or workers write to another
// server. In the second case a new connection leads there. All callers share one search.
type search struct {
	closing atomic.Bool // connections are being closed

	mu      sync.Mutex
	ended   time.Time     // the latest one
	known   int64         // what it compared
	result  error         // of the latest one
	running chan struct{} // closed at the end; nil: none runs
}

// moved returns errLeft if a new connection finds workers, or another time than known, the latest
// one that the server has which answered: then workers have written elsewhere and ended. It also
// returns errLeft if ctx ends before one has answered. It returns nil if a new connection finds the
// same or fails: then no better server is known.
func (a *aliveCheck) moved(ctx context.Context, known int64) error {
	s := &a.search
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) >= resultLife || s.known != known {
		if s.running == nil {
			ended := make(chan struct{})
			if !a.launch(func() { a.searchOnce(ended, known) }) {
				return nil
			}
			s.running = ended
		}
		running := s.running
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil || s.known != known { // that search was for another server
			return errLeft
		}
	}
	if s.result != nil {
		a.closeOld()
	}
	return s.result
}

// searchOnce makes one search. It closes ended.
func (a *aliveCheck) searchOnce(ended chan struct{}, known int64) {
	ctx, cancel := context.WithTimeout(a.life, searchLimit)
	defer cancel()
	var result error
	if got, err := a.asksNew(ctx); err == nil && (got.young || got.latest != known) {
		result = errLeft
		a.left.Store(time.Now().UnixNano())
		a.logger.LogAttrs(a.life, slog.LevelWarn, "workers have left the server of some connections: closing these, and loading meanwhile")
	}
	s := &a.search
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.known, s.result, s.running = time.Now(), known, result, nil
	close(ended)
}

// asksNew asks through a new connection.
func (a *aliveCheck) asksNew(ctx context.Context) (aliveAnswer, error) {
	o := *a.client.Options()
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxRetries = 1, 0, 0, 0, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(&o)
	defer client.Close()
	return a.asks(ctx, client)
}

// asks asks the server that a pipeline of client leads to.
func (a *aliveCheck) asks(ctx context.Context, client optioned) (aliveAnswer, error) {
	var q question
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { q = a.addQuestion(ctx, p); return nil })
	if err != nil && !errors.Is(err, redis.Nil) {
		return aliveAnswer{}, err
	}
	return a.evaluate(q), nil
}

// probeNew asks a new connection, concurrently with callers, while no field has been seen: workers
// may have started at another server only. Once a field was seen, a server without fields has been
// left.
func (a *aliveCheck) probeNew() {
	now, last := time.Now().UnixNano(), a.looked.Load()
	if now-last < int64(lookPause) || !a.looked.CompareAndSwap(last, now) {
		return
	}
	a.launch(func() {
		ctx, cancel := context.WithTimeout(a.life, searchLimit)
		defer cancel()
		if got, err := a.asksNew(ctx); err == nil && got.young {
			a.seen.Store(true)
		}
	})
}

// closeOld closes connections of the pool until one leads to a server where workers write.
// Connections in use may remain, and every answer is checked anyway. QUIT needs no ACL permission.
func (a *aliveCheck) closeOld() {
	if a.search.closing.Swap(true) {
		return
	}
	closing := func() {
		defer a.search.closing.Store(false)
		ctx, cancel := context.WithTimeout(a.life, searchLimit)
		defer cancel()
		for range mostClosed {
			if got, err := a.asks(ctx, a.client); got.young || err != nil {
				return
			}
			// The pool hands out the connection that was returned last, so this is the same one.
			_, _ = a.client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Do(ctx, "quit").Err() })
		}
	}
	if !a.launch(closing) {
		a.search.closing.Store(false)
	}
}

// A mapLease is the configured lease, and the shortest one of the maps of the reader's sources.
// Safe for concurrent use, except beat.
type mapLease struct {
	configured time.Duration
	longest    atomic.Int64     // of the maps, in milliseconds; zero: unknown
	told       atomic.Bool      // the log reports that it is shorter
	beats      map[string]int64 // as heartbeats of each source say
}

// field records what a server says.
func (l *mapLease) field(longest int64, logger *slog.Logger) {
	if longest <= 0 || l.longest.Load() == longest {
		return
	}
	l.longest.Store(longest)
	err := l.healthy()
	if (err != nil) == l.told.Swap(err != nil) {
		return
	}
	if err != nil {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "the configured lease is longer than the map's", slog.Any("error", err))
	} else {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "the configured lease is no longer than the map's")
	}
}

// beat records what a heartbeat says. Fields count if there are any.
func (l *mapLease) beat(b *protocol.Beat, fields bool, logger *slog.Logger) {
	if b.Lease <= 0 {
		return
	}
	l.beats[b.Source] = b.Lease
	if fields {
		return
	}
	longest := b.Lease
	for _, other := range l.beats {
		longest = min(longest, other)
	}
	l.field(longest, logger)
}

// get returns the shorter one.
func (l *mapLease) get() time.Duration {
	if longest := time.Duration(l.longest.Load()) * time.Millisecond; longest > 0 {
		return min(l.configured, longest)
	}
	return l.configured
}

// healthy returns an error if the map's is shorter.
func (l *mapLease) healthy() error {
	if longest := l.get(); longest < l.configured {
		return fmt.Errorf("Config.Lease is %v, and the map's lease is %v, which counts: lower Config.Lease, or raise lease in the map", l.configured, longest)
	}
	return nil
}

// replicaPause is for how long nothing is sent after a server answered READONLY.
const replicaPause = time.Second

const (
	// probePause is the time between two write probes while no server is suspected.
	probePause = 30 * time.Second
	// doubtPause is probePause while answers have no young field of [protocol.AliveKey]: the server
	// may be a master that was demoted.
	doubtPause = time.Second
)

// errReplica is returned for a server that refuses to write.
var errReplica = fmt.Errorf("%w: the server is a replica, which lags behind an UNLINK: lead the client to the master, and turn off ReplicaOnly of a failover client", ErrRedisConnection)

// A replica records that a server refused to write. From then on no answer is used until a server
// accepts a write: a replica answers reads, and has the fields of the workers too. The zero value is
// for a server that has refused no write. Safe for concurrent use.
type replica struct {
	until atomic.Int64 // no probe until then, in Unix nanoseconds; zero: no suspicion
	next  atomic.Int64 // when the next pipeline takes a write probe along, likewise
}

// found records a refusal.
func (r *replica) found(logger *slog.Logger) {
	if r.until.Swap(time.Now().Add(replicaPause).UnixNano()) == 0 {
		logger.LogAttrs(context.Background(), slog.LevelError, "Redis is a replica: every call loads", slog.Any("error", errReplica))
	}
}

// accepted records that a server accepted a write probe.
func (r *replica) accepted(logger *slog.Logger) {
	if r.until.Load() != 0 && r.until.Swap(0) != 0 {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "Redis takes writes again")
	}
}

// due reports whether the next pipeline takes a write probe along.
func (r *replica) due(now time.Time) bool {
	return r.suspected() || now.UnixNano() >= r.next.Load()
}

// takes reports whether a pipeline that is sent now takes a write probe along: one of several
// concurrent ones, or each while a server is suspected.
func (r *replica) takes(now time.Time) bool {
	next := r.next.Load()
	return r.suspected() || now.UnixNano() >= next && r.next.CompareAndSwap(next, now.Add(probePause).UnixNano())
}

// doubt makes a probe due doubtPause after the latest one, instead of probePause.
func (r *replica) doubt(now time.Time) {
	if next := r.next.Load(); next > now.Add(doubtPause).UnixNano() {
		r.next.CompareAndSwap(next, next-int64(probePause-doubtPause))
	}
}

// suspected reports whether a server has refused a write and none has accepted one since.
func (r *replica) suspected() bool { return r.until.Load() != 0 }

// pauses reports whether nothing is sent now.
func (r *replica) pauses(now time.Time) bool { return now.UnixNano() < r.until.Load() }
