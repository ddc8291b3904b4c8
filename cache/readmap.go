package cache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/envtext"
	"github.com/unstale/unstale/protocol"
)

// A ReadMap is the part of a map that a generated package contains: see `unstale map generate`.
// Generated packages have one; applications use it only to set the variables. It is safe for
// concurrent use.
type ReadMap struct {
	hash string
	vars []ReadVar
	now  atomic.Pointer[readVars]

	mu      sync.Mutex
	entries []string // names, in the order of the map
}

// A ReadVar is an entry of vars whose value depends on the environment. Generated code fills it.
type ReadVar struct {
	Name string
	// Text is the value as written in the map, with ${NAME} and ${NAME:-default}.
	Text string
	// OneOf lists the allowed values. Nil allows any value.
	OneOf []string
}

// readVars are the values of the vars, or the reason why they are unknown.
type readVars struct {
	values  []string // as many as there are vars
	version string
	err     error
}

// NewReadMap is called by generated code.
func NewReadMap(hash string, vars ...ReadVar) *ReadMap { return &ReadMap{hash: hash, vars: vars} }

// Use sets the values of the map's variables from lookup, which works like os.LookupEnv. Without
// Use, they come from the environment of the process, at the first read. Call it before the first
// read if they come from elsewhere, for example in a test. The error names the variable; until Use
// succeeds, all reads of the package are loaded and not cached.
func (m *ReadMap) Use(lookup func(name string) (string, bool)) error {
	now := m.resolve(lookup)
	m.now.Store(now)
	return now.err
}

// Check returns an error if a variable of the map is missing or has a value that the map does not
// allow. Reads are then loaded and not cached. Call it at startup.
func (m *ReadMap) Check() error { return m.current().err }

// Version returns the fingerprint of the map's reads, with the values of the variables. `unstale
// map describe` prints the same one for the map of the workers. It is "" if Check fails.
func (m *ReadMap) Version() string { return m.current().version }

// Vars is called by generated code. It returns one value per variable, which is "" if Check fails.
func (m *ReadMap) Vars() []string { return m.current().values }

func (m *ReadMap) current() *readVars {
	if now := m.now.Load(); now != nil {
		return now
	}
	m.now.CompareAndSwap(nil, m.resolve(os.LookupEnv))
	return m.now.Load()
}

func (m *ReadMap) resolve(lookup func(string) (string, bool)) *readVars {
	now := &readVars{values: make([]string, len(m.vars))}
	var errs []error
	for i, v := range m.vars {
		value, err := v.resolve(lookup)
		now.values[i] = value
		errs = append(errs, err)
	}
	if now.err = errors.Join(errs...); now.err != nil {
		clear(now.values)
		return now
	}
	now.version = protocol.ReadsVersion(m.hash, now.values)
	return now
}

// resolve replaces environment variables as the map does.
func (v ReadVar) resolve(lookup func(string) (string, bool)) (string, error) {
	unset := ""
	value, _ := envtext.Replace(v.Text, func(r envtext.Reference) string {
		value, ok := r.Value(lookup)
		if unset == "" && (!ok || value == "" && v.OneOf != nil) {
			unset = r.Name
		}
		return value
	})
	switch {
	case unset != "":
		return "", fmt.Errorf("the environment variable %s is not set, and the var %s of the map needs it", unset, v.Name)
	case value == "":
		return "", fmt.Errorf("the var %s of the map is empty", v.Name)
	case v.OneOf != nil && !slices.Contains(v.OneOf, value):
		return "", fmt.Errorf("the var %s of the map is %q: must be one of %s", v.Name, value, strings.Join(v.OneOf, ", "))
	}
	return value, nil
}

// A ReadEntry is an entry of the map's section reads. Generated packages have one per entry.
type ReadEntry struct {
	m      *ReadMap
	name   string
	policy *Policy
}

// Entry is called by generated code. It panics if the options are invalid.
func (m *ReadMap) Entry(name string, o Options) *ReadEntry {
	e := &ReadEntry{m: m, name: name, policy: MustPolicy(o)}
	e.policy.read = e
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = append(m.entries, name)
	return e
}

// Read is called by generated code, with the key and the tags of the value.
func (e *ReadEntry) Read(key string, tags ...string) Read {
	p := e.policy
	if len(tags) > 0 {
		p = p.Tagged(tags...)
	}
	return Read{key: key, policy: p, err: e.m.Check()}
}

// Refuse is called by generated code for a value that no row can have or that the map does not
// declare. The read is then loaded and not cached.
func (e *ReadEntry) Refuse(hole string, value any) Read {
	return Read{policy: e.policy, err: fmt.Errorf("the read %s: %s is %#v, and the map makes no such key stale", e.name, hole, value)}
}

// ReadText is called by generated code. It reports whether a row can have the text as a value: 1 to
// 255 characters of UTF-8.
func ReadText(text string) bool {
	return text != "" && utf8.ValidString(text) && utf8.RuneCountInString(text) <= protocol.MaxID
}

// A Read is one value that a map's section reads names: its key and its policy. Functions of
// generated packages return it. See FetchRead.
type Read struct {
	key    string
	policy *Policy
	err    error
}

// Key returns the whole key in Redis. It is "" if Err is not nil.
func (r Read) Key() string {
	if r.err != nil {
		return ""
	}
	return r.key
}

// Name returns the name of the entry of the section reads.
func (r Read) Name() string { return r.policy.read.name }

// Policy returns the policy of the value, with the tags of this key.
func (r Read) Policy() *Policy { return r.policy }

// Err returns the reason why the value is not cached: a variable of the map is not set, or the map
// does not declare a value of the key. It is nil for a value that is cached.
func (r Read) Err() error { return r.err }

// After returns a copy for a caller that must read its own writes: see Policy.After.
func (r Read) After(check Checker) Read {
	r.policy = r.policy.After(check)
	return r
}

// AppendUUID is called by generated code. It appends the text of a UUID to k, in lower case.
func AppendUUID(k []byte, id [16]byte) []byte {
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			k = append(k, '-')
		}
		k = hex.AppendEncode(k, id[i:i+1])
	}
	return k
}

// UUIDTexts is called by generated code. It returns the texts of UUIDs.
func UUIDTexts(ids [][16]byte) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(AppendUUID(nil, id))
	}
	return texts
}

// FetchRead is like Fetch, with the key and the policy of a generated function:
//
//	page, err := cache.FetchRead(ctx, c, shopcache.ProductPage(42), load)
//
// The key is the whole key in Redis. If Config.Prefix is set, the key must begin with it. If it
// does not, or if Read.Err is not nil, no invalidation would reach the value. FetchRead then calls
// load and caches nothing, counts this in Statistics.Reads, and logs the reason at most once per
// minute.
func FetchRead[T any](ctx context.Context, c *Cache, read Read, load Loader[T]) (T, error) {
	result, err := FetchReadResult(ctx, c, read, load)
	return result.Value, err
}

// FetchReadResult is like FetchRead, and also returns the source of the value.
func FetchReadResult[T any](ctx context.Context, c *Cache, read Read, load Loader[T]) (Result[T], error) {
	key, err := c.keyOf(read)
	if err != nil {
		c.reads.refused(c.config.Logger, read, err)
		value, err := load(ctx)
		return Result[T]{Value: value, Source: FromLoader}, c.asNotFound(err)
	}
	return FetchResult(ctx, c, key, load, read.policy)
}

// keyOf returns the key of a read without the prefix.
func (c *Cache) keyOf(read Read) (string, error) {
	if read.err != nil {
		return "", read.err
	}
	key, ok := strings.CutPrefix(read.key, c.config.Prefix)
	if !ok {
		return "", fmt.Errorf("the key %q of the read %s does not begin with Config.Prefix %q", read.key, read.Name(), c.config.Prefix)
	}
	return key, nil
}

// readCounts counts by entry of the section reads. Its size is bounded by the number of entries in
// generated code.
type readCounts struct {
	all    sync.Map // *ReadEntry to *readCount
	told   complaints
	others otherKeys

	mu      sync.Mutex
	numbers []*readCount // by their number, from 1
}

// readBounds are the upper bounds of the buckets of latencies, in seconds.
var readBounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// A readCount counts the calls for one entry.
type readCount struct {
	number                                          uint16 // for values in L1; 0: too many
	l1, l2, misses, stale, errors, evicted, refused atomic.Uint64
	// buckets counts the calls that L1 did not answer, by latency. The last one has no bound.
	buckets [len(readBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

// of returns the count of the entry of a policy, and nil for a policy of no entry.
func (r *readCounts) of(p *Policy) *readCount {
	if p.read == nil {
		return nil
	}
	if n, ok := r.all.Load(p.read); ok {
		return n.(*readCount)
	}
	r.others.on.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.all.Load(p.read); ok {
		return n.(*readCount)
	}
	n := &readCount{}
	if len(r.numbers) < math.MaxUint16 {
		r.numbers = append(r.numbers, n)
		n.number = uint16(len(r.numbers))
	}
	r.all.Store(p.read, n)
	return n
}

// numbered returns the count with a number, and nil for 0.
func (r *readCounts) numbered(number uint16) *readCount {
	if r == nil || number == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbers[number-1]
}

// index returns the number of a count, and 0 for none.
func (n *readCount) index() uint16 {
	if n == nil {
		return 0
	}
	return n.number
}

func (n *readCount) hit() {
	if n != nil {
		n.l1.Add(1)
	}
}

// evict counts a value that left L1 because L1 was full.
func (n *readCount) evict() {
	if n != nil {
		n.evicted.Add(1)
	}
}

// answered counts a call that L1 did not answer.
func (n *readCount) answered(source Source, stale bool, err error, took time.Duration) {
	switch {
	case err != nil && !isNotFound(err):
		n.errors.Add(1)
	case source == FromLoader:
		n.misses.Add(1)
	default:
		n.l2.Add(1)
	}
	if stale {
		n.stale.Add(1)
	}
	bucket := 0
	for bucket < len(readBounds) && took.Seconds() > readBounds[bucket] {
		bucket++
	}
	n.buckets[bucket].Add(1)
	n.nanos.Add(int64(took))
}

// refused counts a call whose value must not be cached, and logs the reason.
func (r *readCounts) refused(logger *slog.Logger, read Read, err error) {
	r.of(read.policy).refused.Add(1)
	if r.told.due() {
		logger.Error("value is loaded and not cached: no invalidation reaches it", "read", read.Name(), "error", err)
	}
}

// ReadStatistics counts the calls for one entry of the section reads since New. Fetch, FetchResult,
// and FetchRead count; FetchMany and Warm do not.
type ReadStatistics struct {
	L1Hits uint64 `json:"l1Hits"` // from L1
	L2Hits uint64 `json:"l2Hits"` // from Redis
	Misses uint64 `json:"misses"` // loaded by this caller or another one
	Stale  uint64 `json:"stale"`  // expired values among these
	Errors uint64 `json:"errors"` // calls that returned an error other than ErrNotFound
	// values that L1 dropped because it was full
	L1Evictions uint64 `json:"l1Evictions"`
	// calls that were loaded and not cached: see FetchRead
	Refused uint64 `json:"refused"`
	// Latencies of the calls that L1 did not answer: the number of calls up to each bound of
	// LatencyBounds, and of all. Seconds is their sum.
	Latencies []uint64 `json:"latencies"`
	Seconds   float64  `json:"seconds"`
}

// LatencyBounds returns the upper bounds of ReadStatistics.Latencies in seconds, except the last
// one, which has no bound.
func LatencyBounds() []float64 { return append([]float64(nil), readBounds[:]...) }

// statistics returns the counts by name, and the fingerprints of the maps of the reads.
func (r *readCounts) statistics() (all map[string]ReadStatistics, versions []string) {
	r.all.Range(func(key, value any) bool {
		e, n := key.(*ReadEntry), value.(*readCount)
		s, ok := all[e.name] // of another map
		if !ok {
			s.Latencies = make([]uint64, len(n.buckets))
		}
		s.L1Hits += n.l1.Load()
		s.L2Hits += n.l2.Load()
		s.Misses += n.misses.Load()
		s.Stale += n.stale.Load()
		s.Errors += n.errors.Load()
		s.L1Evictions += n.evicted.Load()
		s.Refused += n.refused.Load()
		s.Seconds += time.Duration(n.nanos.Load()).Seconds()
		var sum uint64
		for i := range n.buckets {
			sum += n.buckets[i].Load()
			s.Latencies[i] += sum
		}
		if all == nil {
			all = map[string]ReadStatistics{}
		}
		all[e.name] = s
		return true
	})
	return all, r.versions()
}

// versions returns the fingerprints of the maps of all entries that were fetched, sorted.
func (r *readCounts) versions() (all []string) {
	if r == nil {
		return nil
	}
	r.all.Range(func(key, _ any) bool {
		if v := key.(*ReadEntry).m.Version(); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
		return true
	})
	slices.Sort(all)
	return all
}

// Unfetched returns the entries of the map's section reads that are in none of the statistics, in
// the order of the map. After a typical day of a process, these reads are not used or are fetched
// by hand: see Statistics.OtherKeys.
//
//	slog.Info("reads", "unfetched", shopcache.Map.Unfetched(c.Statistics()))
func (m *ReadMap) Unfetched(all ...Statistics) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.entries), func(name string) bool {
		return slices.ContainsFunc(all, func(s Statistics) bool { _, fetched := s.Reads[name]; return fetched })
	})
}

const (
	mostOtherKeys = 20
	mostOtherKey  = 128 // bytes
)

// otherKeys are the forms of keys that were fetched without a generated function. They are noted
// once a generated function was used, because an application without any has only other keys.
type otherKeys struct {
	on, full atomic.Bool
	mu       sync.Mutex
	forms    map[string]struct{}
}

func (o *otherKeys) addForm(prefix, key string) {
	if !o.on.Load() || o.full.Load() {
		return
	}
	var buf [mostOtherKey]byte
	form := appendForm(appendForm(buf[:0], prefix), key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.forms[string(form)]; known || len(o.forms) == mostOtherKeys {
		return
	}
	if o.forms == nil {
		o.forms = map[string]struct{}{}
	}
	o.forms[string(form)] = struct{}{}
	o.full.Store(len(o.forms) == mostOtherKeys)
}

// appendForm appends a key up to the capacity of form. Parts between colons that have a digit
// become #.
func appendForm(form []byte, key string) []byte {
	for part := range strings.SplitAfterSeq(key, ":") {
		if strings.ContainsAny(part, "0123456789") {
			part = "#" + part[len(strings.TrimSuffix(part, ":")):]
		}
		form = append(form, part[:min(len(part), cap(form)-len(form))]...)
	}
	return form
}

// sorted returns the forms in sorted order.
func (o *otherKeys) sorted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.forms))
}

// A Checker knows whether what the worker has to do for a caller's own writes is done. Package
// outbox has one for the token of a write: outbox.NewCheck. It is asked once for each call that it
// is given to, and must be safe for concurrent use.
type Checker interface {
	// Settled reports whether the keys that the writes made stale are gone from Redis. left is how
	// long the writes still matter: if it is 0, they no longer matter, regardless of the other
	// results. An error or a panic means that the answer is unknown. ctx ends with the caller's
	// context, after Config.HardTimeout, and when the Cache is closed.
	Settled(ctx context.Context) (settled bool, left time.Duration, err error)
}

// After returns a copy of the policy for a caller that must read its own writes, from whichever
// process they come. A nil policy is Config.Policy.
//
// Until the writes are settled, a call reads neither L1 nor Redis and joins no load of another
// caller: it calls its loader, which must read the primary. The result is stored if Redis accepts
// it, and a failed load returns no old value. The same holds while check fails, and for writes that
// are never settled. Once the writes are settled, a call skips only L1, which may not have received
// the message of the worker yet.
func (p *Policy) After(check Checker) *Policy {
	with := p.copied()
	with.after = check
	return with
}

// GetAfter is like Get, for a caller that must read its own writes: see Policy.After. Until these
// are settled, the error is ErrMiss.
func GetAfter[T any](ctx context.Context, c *Cache, key string, check Checker) (T, error) {
	if check == nil {
		return Get[T](ctx, c, key)
	}
	return cached[T](ctx, c, key, c.config.Policy.After(check))
}

// A readConstraint is the constraint on a read that the writes of its caller require.
type readConstraint uint8

const (
	anything  readConstraint = iota // no writes, or none that still matter
	notMemory                       // they are settled
	loaded                          // they are not, or it is unknown
)

// readConstraint calls the Checker of the policy. If the context of the caller ends meanwhile, the
// call continues with it, and ends as one without a Checker does. The error is ErrClosed.
func (c *Cache) readConstraint(ctx context.Context, p *Policy) (readConstraint, error) {
	if p.after == nil {
		return anything, nil
	}
	limited, cancel := context.WithTimeout(ctx, c.config.HardTimeout)
	defer cancel()
	defer context.AfterFunc(c.run.life, cancel)()
	settled, left, err := callChecker(limited, p.after)
	switch {
	case c.run.life.Err() != nil:
		return loaded, ErrClosed
	case ctx.Err() != nil:
		return loaded, nil
	case err == nil && left <= 0:
		return anything, nil
	case err == nil && settled:
		return notMemory, nil
	}
	c.counts.unsettled.Add(1)
	if err != nil && c.complaints.due() {
		c.config.Logger.Warn("what a caller has written is not known to be settled, so it is loaded each time", "error", err)
	}
	return loaded, nil
}

// callChecker asks a Checker, and makes an error of a panic.
func callChecker(ctx context.Context, check Checker) (settled bool, left time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Checker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return check.Settled(ctx)
}

// complaints limits log messages to one per minute.
type complaints struct{ last atomic.Int64 }

func (c *complaints) due() bool {
	now, last := time.Now().Unix(), c.last.Load()
	return now-last >= 60 && c.last.CompareAndSwap(last, now)
}
