package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/protocol"
)

// silentPeriods is how many periods without a sign of life mean that there is none.
const silentPeriods = 3

// A subscriptionState decides from the events of a subscription whether every invalidation arrives.
// It is a state machine without clocks or goroutines: each event comes with its time, and the
// result tells L1 whether to empty, open or close.
//
//	          subscribed            a period, heartbeats of all sources
//	closed ───────────────► listening ───────────────────────► open
//	   ▲ lost                   ▲   └── doubt: again from here     │ doubt: gap, middle, silence,
//	   └────────────────────────┴──────────────────────────────────┘ no pong, unreadable, moved
type subscriptionState struct {
	period   time.Duration
	sources  []string // their workers must send heartbeats
	channels []string // to subscribe to: the configured one, and those that workers have moved to
	// deaf accepts a bounded staleness instead of heartbeats: only the subscription must exist.
	deaf bool

	subscribed bool
	since      time.Time // of the subscription or the latest possible gap
	pong       time.Time // when the latest ping was sent that was answered
	why        error     // for the latest possible gap
	epochs     map[string]*heardEpoch
	// the latest heartbeat of each source that proves that its outbox is looked into
	beats    map[string]time.Time
	progress progress // of the outboxes
	strict   bool     // closed while one is behind
}

// A heardEpoch is one life of a worker.
type heardEpoch struct {
	seq uint64 // the latest number
	// the latest heartbeat, zero if there is none; after the first one, silence is a possible gap
	beat time.Time
	// the outbox whose heartbeats its worker withholds, and why; "" if it does not
	source, withheld string
}

// A verdict is the instruction for L1: whether to empty it, and whether it is open from now on. why
// is the reason if it is closed, late the reason if its outbox is behind.
type verdict struct {
	empty, open bool
	why, late   error
}

func newHearing(config Memory) *subscriptionState {
	return &subscriptionState{
		period: config.Period, sources: config.Sources, channels: []string{config.Channel}, deaf: config.MaxStaleness > 0,
		epochs: map[string]*heardEpoch{}, beats: map[string]time.Time{},
		progress: progress{limit: config.MaxBehind, forget: silentPeriods * config.Period, proofs: map[string]outboxProof{}}, strict: config.CloseBehind,
	}
}

// subscribe handles a new subscription. After the first one, it means that the connection was lost.
func (h *subscriptionState) subscribe(now time.Time) verdict {
	again := !h.since.IsZero()
	h.subscribed, h.pong = true, now
	h.epochs, h.beats = map[string]*heardEpoch{}, map[string]time.Time{}
	v := h.doubt(now, "just subscribed")
	v.empty = again
	return v
}

// lose handles the end of a subscription.
func (h *subscriptionState) lose(now time.Time, err error) verdict {
	stood := h.subscribed
	h.subscribed, h.epochs, h.beats = false, map[string]*heardEpoch{}, map[string]time.Time{}
	v := h.doubt(now, "not subscribed: %w", err)
	v.empty = stood // another failed attempt is not another loss
	return v
}

// answer returns a pong to the ping that was sent at asked: Redis has sent all that it published
// before.
func (h *subscriptionState) answer(asked, now time.Time) verdict {
	h.pong = asked
	return h.tick(now)
}

// misread returns a message that cannot be decoded.
func (h *subscriptionState) misread(now time.Time, err error) verdict {
	return h.doubt(now, "a message cannot be read: %w", err)
}

// message handles a message.
func (h *subscriptionState) message(m protocol.Message, now time.Time) verdict {
	if m.Epoch == "" { // the array format has no numbers
		return h.tick(now)
	}
	e, known := h.epochs[m.Epoch]
	var doubt verdict
	switch {
	case known && m.Seq <= e.seq: // a copy
		return h.tick(now)
	case known && m.Seq > e.seq+1:
		doubt = h.doubt(now, "messages %d to %d of epoch %s are missing", e.seq+1, m.Seq-1, m.Epoch)
	case !known:
		e = &heardEpoch{}
		h.epochs[m.Epoch] = e
		if first := m.Seq == 1 || m.Beat != nil && m.Beat.First; !first {
			doubt = h.doubt(now, "epoch %s began before the first message received", m.Epoch)
		} else if m.Beat != nil && m.Beat.After != "" {
			doubt = h.replace(m.Beat, now)
		}
	}
	e.seq = m.Seq
	if b := m.Beat; b != nil {
		e.beat, e.source, e.withheld = now, b.Source, b.Withheld
		if !b.First && !b.Last { // a worker sends those whether or not it can look into the outbox
			h.beats[b.Source] = now
			h.progress.advanceProof(b, now)
		}
		if b.Last {
			delete(h.epochs, m.Epoch)
		}
		if b.Moved != "" && !slices.Contains(h.channels, b.Moved) {
			// It publishes on both until it is restarted, and its successor on that one alone.
			// Others have yet to move.
			h.channels = append(h.channels, b.Moved)
			doubt = h.doubt(now, "a worker has moved to channel %q", b.Moved)
		}
	}
	v := h.tick(now)
	v.empty = v.empty || doubt.empty
	return v
}

// replace returns the first message of an epoch that follows another one of the same worker.
func (h *subscriptionState) replace(b *protocol.Beat, now time.Time) (doubt verdict) {
	before, known := h.epochs[b.After]
	delete(h.epochs, b.After)
	if known && before.seq >= b.AfterSeq {
		return verdict{}
	}
	return h.doubt(now, "fewer messages of epoch %s were received than sent", b.After)
}

// tick handles the passing of time. Call it several times per period.
func (h *subscriptionState) tick(now time.Time) verdict {
	empty := false
	limit := silentPeriods * h.period
	if h.subscribed && now.Sub(h.pong) > limit {
		empty = h.doubt(now, "no pong for %v", limit).empty
	}
	for name, e := range h.epochs {
		if !e.beat.IsZero() && now.Sub(e.beat) > limit {
			delete(h.epochs, name)
			empty = h.doubt(now, "no heartbeat of epoch %s for %v", name, limit).empty
		}
	}
	for source, beat := range h.beats {
		if now.Sub(beat) > limit {
			delete(h.beats, source)
			if slices.Contains(h.sources, source) {
				empty = h.doubt(now, "no heartbeat of outbox %q for %v", source, limit).empty
			}
		}
	}
	if err := h.closed(now); err != nil {
		return verdict{empty: empty, why: err}
	}
	late := h.progress.late(h.sources, now)
	if late != nil && h.strict {
		return verdict{empty: empty, why: fmt.Errorf("nothing is given out from memory: %w", late)}
	}
	return verdict{empty: empty, open: true, late: late}
}

// doubt restarts listening: a message may have been missed.
func (h *subscriptionState) doubt(now time.Time, format string, args ...any) verdict {
	h.since = now
	h.why = fmt.Errorf("nothing is given out from memory: "+format, args...)
	return verdict{empty: true, why: h.why}
}

// closed returns why the memory must be closed, or nil.
func (h *subscriptionState) closed(now time.Time) error {
	switch {
	case !h.subscribed, h.since.IsZero():
		if h.why == nil {
			return errNotListening
		}
		return h.why
	case h.deaf:
		return nil
	case now.Sub(h.since) < h.period, now.Sub(h.pong) > silentPeriods*h.period:
		return h.why
	}
	for _, source := range h.sources {
		if h.beats[source].IsZero() {
			for _, e := range h.epochs {
				if e.source == source && e.withheld != "" {
					return fmt.Errorf("nothing is given out from memory: workers of outbox %q withhold heartbeats: %s", source, e.withheld)
				}
			}
			return fmt.Errorf("nothing is given out from memory: no heartbeat of a worker of outbox %q arrives", source)
		}
	}
	if len(h.sources) == 0 {
		return errors.New("nothing is given out from memory: no outbox is named")
	}
	return nil
}

const (
	// elsewhereAfter is how long fields must be absent while workers report that they write them.
	elsewhereAfter = 3 * time.Second
	// listenPause is the wait between two short subscriptions.
	listenPause = time.Minute
)

// A wrongServer notices a wrong server, database or source: no answer has a young field, but
// workers write elsewhere, or other workers write here. Safe for concurrent use.
type wrongServer struct {
	// since when no answer has had a young field, as Unix nanoseconds; zero: the latest had one
	absent atomic.Int64
	still  atomic.Int64 // when the latest answer without one came
	heard  atomic.Pointer[heardWorker]
	others atomic.Pointer[[]string] // sources that the latest answer had instead
	told   atomic.Bool              // the log reports it
	counts *atomic.Uint64           // answers meanwhile

	// listen subscribes briefly. Nil: a subscription exists anyway.
	listen   func()
	listened atomic.Int64 // when it last began, as Unix nanoseconds
}

// A heardWorker is a worker whose heartbeat names the places where it writes fields.
type heardWorker struct {
	source string
	until  time.Time // when that is no longer known
}

// recordPresence records an answer from a server where workers write.
func (m *wrongServer) recordPresence(a *aliveCheck) {
	if m.absent.Load() == 0 {
		return
	}
	m.absent.Store(0)
	if m.told.Swap(false) {
		a.logger.LogAttrs(a.life, slog.LevelInfo, "workers write to this server and database")
	}
}

// recordAbsence records an answer without a young field, if no better server is known.
func (m *wrongServer) recordAbsence(a *aliveCheck, got aliveAnswer) {
	now := time.Now().UnixNano()
	m.absent.CompareAndSwap(0, now)
	m.still.Store(now)
	slices.Sort(got.others)
	m.others.Store(&got.others)
	if err := m.healthy(a.sources); err != nil {
		m.counts.Add(1)
		if !m.told.Swap(true) {
			a.logger.LogAttrs(a.life, slog.LevelError, "workers write elsewhere", slog.Any("error", err))
		}
	}
	if last := m.listened.Load(); m.listen != nil && m.lasts() && now-last >= int64(listenPause) && m.listened.CompareAndSwap(last, now) {
		m.listen()
	}
}

// lasts reports whether young fields have been absent for long enough.
func (m *wrongServer) lasts() bool {
	absent := m.absent.Load()
	return absent != 0 && m.still.Load()-absent >= int64(elsewhereAfter)
}

// healthy returns an error if workers write elsewhere, or others here.
func (m *wrongServer) healthy(sources []string) error {
	if !m.lasts() {
		return nil
	}
	found := ""
	if others := m.others.Load(); len(sources) > 0 && others != nil && len(*others) > 0 {
		found = fmt.Sprintf(" (found %q, expected %q)", *others, sources)
	}
	switch heard := m.heard.Load(); {
	case heard != nil && time.Now().Before(heard.until):
		return fmt.Errorf("%w: the workers of outbox %q write to another server or another database%s: compare the address and the database number with the worker's REDIS_URL",
			ErrRedisConnection, heard.source, found)
	case found != "":
		return fmt.Errorf("%w: no worker of the reader's outboxes writes to this server and database%s: compare Memory.Sources with outbox.Source", ErrRedisConnection, found)
	}
	return nil
}

// A gate holds the generation of values that L1 can return, and the reason if it returns none. The
// caller guards all fields except the atomic ones and watch.
type gate struct {
	open    atomic.Uint64 // the generation to give out, or 0
	current atomic.Uint64 // the generation of new values
	doubts  atomic.Uint64 // how often something may have been missed

	opened bool  // by the subscription's state, and possibly shut since
	why    error // for being closed
	late   error // the invalidation is behind, while it is open
	ended  bool  // it never opens again
}

// renew begins a new generation. A gate that was shut stays shut.
func (g *gate) renew(open bool) {
	before, next := g.open.Load(), g.current.Add(1)
	switch {
	case !open:
		g.open.Store(0)
	case !g.opened:
		g.open.Store(next)
	case before != 0:
		g.open.CompareAndSwap(before, next)
	}
	g.opened = open
}

// obey applies a verdict, and opens the gate if the verdict requires it. It reports whether L1 must
// be emptied.
func (g *gate) obey(v verdict) (empty bool) {
	g.why, g.late = v.why, v.late
	if v.empty || g.opened && !v.open {
		return true
	}
	if v.open && !g.opened {
		g.open.Store(g.current.Load())
		g.opened = true
	}
	return false
}

// healthy returns why nothing is given out, or how far the invalidation is behind, or nil.
func (g *gate) healthy() error {
	switch {
	case g.open.Load() != 0:
		return g.late
	case g.opened:
		return errShut
	}
	return g.why
}

// wasShut reports whether watch has shut the gate since it opened.
func (g *gate) wasShut() bool { return g.opened && g.open.Load() == 0 }

// watch shuts the gate while an arrival in the backlog is late, until the backlog is closed. It
// takes no mutex that an eviction holds.
func (g *gate) watch(b *backlog) {
	ticks := time.Tick(watchStep)
	for {
		select {
		case <-b.closed:
			return
		case <-ticks:
			if b.late(time.Now()) {
				g.open.Store(0)
			}
		}
	}
}

// A progress knows from heartbeats how far behind the invalidation of each outbox is. It has no
// clock. Not safe for concurrent use.
type progress struct {
	limit  time.Duration // of how far behind it may be
	forget time.Duration // how long a proof counts without a new heartbeat
	proofs map[string]outboxProof
}

// An outboxProof is the latest one of an outbox: all that was committed by asOf is invalidated.
type outboxProof struct{ asOf, heard time.Time }

// advanceProof processes a heartbeat. Heartbeats of older workers have no position.
func (p *progress) advanceProof(b *protocol.Beat, now time.Time) {
	if b.Behind <= 0 {
		return
	}
	last, asOf := p.proofs[b.Source], now.Add(-time.Duration(b.Behind)*time.Millisecond)
	if asOf.Before(last.asOf) { // another worker knows more
		asOf = last.asOf
	}
	p.proofs[b.Source] = outboxProof{asOf, now}
}

// late returns an error that wraps [ErrBehind] if the invalidation of one of the outboxes is behind
// by more than the limit.
func (p *progress) late(sources []string, now time.Time) error {
	for _, source := range sources {
		proof, known := p.proofs[source]
		if !known || now.Sub(proof.heard) > p.forget {
			continue
		}
		if behind := now.Sub(proof.asOf); behind > p.limit {
			return fmt.Errorf("%w: outbox %q, by %s, more than %s", ErrBehind, source, behind.Round(100*time.Millisecond), p.limit)
		}
	}
	return nil
}

const (
	// overflowsShown is how many values in a row must be refused before Healthy reports it: a slow
	// load costs a few.
	overflowsShown = 16
	// overflowShown is for how long the latest one shows: where nothing is read nothing can be kept
	// either.
	overflowShown = 10 * time.Second
)

// An overflow counts the values that memory refuses since more was evicted during their load than
// its log remembers.
type overflow struct {
	total  atomic.Uint64
	inARow atomic.Uint64 // since a value was kept
	latest atomic.Int64  // when one was refused, in nanoseconds
}

func (o *overflow) refused(logger *slog.Logger) {
	o.total.Add(1)
	o.latest.Store(time.Now().UnixNano())
	if o.inARow.Add(1) == overflowsShown {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "memory keeps nothing", slog.Any("error", ErrMemoryOverflow))
	}
}

func (o *overflow) kept(logger *slog.Logger) {
	if o.inARow.Load() != 0 && o.inARow.Swap(0) >= overflowsShown {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "memory keeps values again")
	}
}

func (o *overflow) overflows() error {
	if o.inARow.Load() >= overflowsShown && time.Now().UnixNano()-o.latest.Load() < int64(overflowShown) {
		return ErrMemoryOverflow
	}
	return nil
}

const (
	// unlinksKept is how many keys' unlink times are remembered.
	unlinksKept = 8192
	// unlinkMargin allows for masters with different clocks: see docs/protocol.md.
	unlinkMargin = time.Second
	// confirmPeriods is how many periods after a first old entry a message must arrive to confirm
	// it.
	confirmPeriods = 10
	// confirmedWithin is for how long a first old entry waits for that.
	confirmedWithin = 10 * time.Minute
	// elsewhereShown is for how long Healthy reports the latest one.
	elsewhereShown = 5 * time.Minute
)

// An unlinkWatch finds proof that workers unlink keys elsewhere. A worker publishes a key after it
// has unlinked it, with an earlier time of Redis (u). From then on, Redis holds no entry of the key
// whose lease is older, unless the worker uses another server or database.
//
// A failover to a replica that is behind, or a restart from a snapshot, also restores old entries
// until workers have unlinked them again. So one old entry is only counted. It is reported if an
// old entry is read again after a message that arrived ten periods later. Messages from before a
// possible gap, for example a lost subscription, prove nothing. Safe for concurrent use.
type unlinkWatch struct {
	confirm time.Duration
	logger  *slog.Logger
	seed    maphash.Seed
	total   atomic.Uint64 // old entries
	some    atomic.Bool   // a message had an unlink time

	mu     sync.Mutex
	keys   []unlinkedKey // by hash; nil before the first
	first  time.Time     // an old entry to confirm
	latest time.Time     // one that was
	told   bool
}

// An unlinkedKey is a key of a message.
type unlinkedKey struct {
	hash, doubts uint64
	at           uint64    // the memory's number of the next eviction
	unlinked     int64     // in microseconds, by the clock of Redis
	heard        time.Time // when the message arrived
}

func newUnlinkWatch(config Config) unlinkWatch {
	return unlinkWatch{confirm: confirmPeriods * config.Memory.Period, logger: config.Logger, seed: maphash.MakeSeed()}
}

func (u *unlinkWatch) slot(name string) (hash uint64, slot *unlinkedKey) {
	hash = maphash.String(u.seed, name)
	return hash, &u.keys[hash%unlinksKept]
}

// rememberUnlinks remembers when the keys of a message were unlinked, with a mark from after their
// eviction.
func (u *unlinkWatch) rememberUnlinks(a *arrival, since mark) {
	keys := a.message.Keys
	if a.message.Unlinked == 0 || a.rejected != nil || len(keys) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys == nil {
		u.keys = make([]unlinkedKey, unlinksKept)
	}
	for _, name := range keys {
		hash, slot := u.slot(name)
		*slot = unlinkedKey{hash, since.doubts, since.at, int64(a.message.Unlinked), a.at}
	}
	u.some.Store(true)
}

// checkBirth checks whether an entry should have been unlinked before it was read, with a mark from
// before the read.
func (u *unlinkWatch) checkBirth(name string, birth int64, since mark) {
	if birth == 0 || since.open == 0 || !u.some.Load() {
		return
	}
	if err := u.checkAt(name, birth, since, time.Now()); err != nil {
		u.logger.LogAttrs(context.Background(), slog.LevelError, "workers unlink keys elsewhere", slog.String("key", name), slog.Any("error", err))
	}
}

// checkAt is like checkBirth, at a given time. It returns an error to log.
func (u *unlinkWatch) checkAt(name string, birth int64, since mark, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	hash, slot := u.slot(name)
	old := slot.hash == hash && slot.at <= since.at && slot.doubts == since.doubts && birth+unlinkMargin.Microseconds() < slot.unlinked
	if !old {
		return nil
	}
	u.total.Add(1)
	switch {
	case u.first.IsZero() || now.Sub(u.first) > confirmedWithin && now.Sub(u.latest) > elsewhereShown:
		u.first = now
	case slot.heard.Sub(u.first) > u.confirm:
		u.latest = now
		if !u.told {
			u.told = true
			return ErrUnlinkedElsewhere
		}
	}
	return nil
}

// elsewhereLately returns ErrUnlinkedElsewhere for a while after the latest confirmed old entry.
func (u *unlinkWatch) elsewhereLately(now time.Time) error {
	if !u.some.Load() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.latest.IsZero() && now.Sub(u.latest) < elsewhereShown {
		return ErrUnlinkedElsewhere
	}
	return nil
}

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

// logOnce logs, once, that Redis refuses reports, and that it accepts them again. Outages are
// logged elsewhere.
func (r *refusal) logOnce(err error) {
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
