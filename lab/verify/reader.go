package verify

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

const (
	browsers   = 64 // goroutines that read any key
	followers  = 32 // goroutines that read committed keys
	pairers    = 32 // goroutines that read with tokens
	readerStep = 40 * time.Millisecond
	told       = 200 * time.Millisecond // between two lines of a reader
	mostTold   = 2000                   // findings of one line: more than its reads, since pauses excuse only those that are told
)

// tallies are the counts of a reader since its last line.
type tallies struct {
	Process   int       `json:"process"`
	Reads     int64     `json:"reads"`  // checked
	Memory    int64     `json:"memory"` // reads that were answered from L1
	Redis     int64     `json:"redis"`
	Loaded    int64     `json:"loaded"`
	Expired   int64     `json:"expired"` // answered by an expired value
	Pairs     int64     `json:"pairs"`   // reads with the token of a write
	Stale     int64     `json:"stale"`   // older than a commit, within the bound or not
	Excused   int64     `json:"excused"`
	Errors    int64     `json:"errors"`    // reads without an answer
	Refused   uint64    `json:"refused"`   // fills
	Unsettled uint64    `json:"unsettled"` // pairs whose write was not known to be settled
	Healthy   string    `json:"healthy"`   // why not
	Error     string    `json:"error"`     // one of Errors
	Stalls    []stall   `json:"stalls"`
	Found     []finding `json:"found"`
	Missed    int64     `json:"missed"`  // findings that were too many to tell
	Shadows   uint64    `json:"shadows"` // shadow reads, and those that differed twice
	Differed  uint64    `json:"differed"`
}

// A reader is one process that reads, or the end of a client in this process.
type reader struct {
	spec
	table    *table
	db       *sql.DB
	client   redis.UniversalClient
	outside  *client // nil: cache reads
	cache    *cache.Cache
	policies []*cache.Policy // per key
	direct   []*cache.Policy // the same, without L1
	many     *cache.Policy   // of keys without a tag
	stalls   stallWatch
	loader   *loader
	chase    chan int
	followed []atomic.Bool // per key: it is in chase, or a follower reads it

	prover prover

	reads, paired, memory, redis, loaded, expired, stale, excused atomic.Int64

	findings findings
	known    cache.Statistics // already reported
}

// Read runs a reader process: it reads its orders from in and writes one line of JSON at a time to
// out, until in ends.
func Read(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return errors.New("a reader is started by verify, which tells it what to read")
	}
	r := &reader{}
	if err := json.Unmarshal(lines.Bytes(), &r.spec); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	redis.SetLogger(rig.Silence{})
	if err := r.open(); err != nil {
		return err
	}
	if err := r.openCache(); err != nil {
		return err
	}
	defer r.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for lines.Scan() {
			var p pair
			if json.Unmarshal(lines.Bytes(), &p) == nil {
				r.prover.take(p)
			}
		}
	}()
	encoder := json.NewEncoder(out)
	return r.work(ctx, func(t tallies) error { return encoder.Encode(t) })
}

// work reads until ctx ends. It hands its counts to tell.
func (r *reader) work(ctx context.Context, tell func(tallies) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { r.stalls.watch(ctx) })
	for i := range browsers {
		group.Go(func() { r.browse(ctx, diceOf(&r.spec, uint64(i))) })
	}
	for i := range followers {
		group.Go(func() { r.follow(ctx, diceOf(&r.spec, uint64(100+i))) })
	}
	for i := range pairers {
		group.Go(func() { r.prover.prove(ctx, diceOf(&r.spec, uint64(200+i))) })
	}
	group.Go(func() { r.listen(ctx) })
	if r.Stock > 0 {
		group.Go(func() { r.keepStock(ctx) })
	}
	err := r.tell(ctx, tell)
	cancel()
	group.Wait()
	return errors.Join(err, tell(r.line()))
}

// diceOf returns random numbers for one part of a process.
func diceOf(s *spec, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed, uint64(s.Process)<<32|stream))
}

func (r *reader) open() (err error) {
	r.chase, r.prover = make(chan int, 64), prover{r, make(chan pair, 256)}
	if r.table, err = openTable(r.Table, r.Keys); err != nil {
		return err
	}
	r.followed = make([]atomic.Bool, r.Keys)
	if r.db, err = sql.Open("mysql", r.MySQL); err != nil {
		return err
	}
	r.db.SetMaxIdleConns(32)
	r.db.SetMaxOpenConns(32)
	r.client = r.connect()
	r.loader = &loader{spec: &r.spec, db: r.db, client: r.client, keys: map[string]int{}, commits: make([]bell, r.Keys), evicted: make([]bell, r.Keys)}
	for key := range r.Keys {
		r.loader.keys[r.name(key)] = key
	}
	return nil
}

func (r *reader) openCache() (err error) {
	config := cache.Config{Redis: r.client, Lease: lease, Logger: slog.New(slog.DiscardHandler)}
	config.Hooks.Evict = r.hearing()
	if r.RawValues {
		config.Codec, config.RawValues = otherCodec{cache.JSON}, r.Process%2 == 1
	}
	if len(r.Sources) > 0 && !r.Gets {
		config.Memory = cache.Memory{Size: r.Keys + r.Stock, Sources: r.Sources}
		if r.ShadowRate > 0 {
			config.Shadow = cache.Shadow{Fraction: 1, Rate: r.ShadowRate}
		}
	}
	if r.cache, err = cache.New(config); err != nil {
		return err
	}
	r.many = cache.MustPolicy(cache.Options{TTL: r.TTL, Stale: -1})
	for key := range r.Keys {
		o := cache.Options{TTL: r.TTL, Stale: -1}
		if r.kind(key) == tagged {
			o.Tags = []string{r.tag(key)}
		}
		r.policies = append(r.policies, cache.MustPolicy(o))
		o.SkipMemory = true
		r.direct = append(r.direct, cache.MustPolicy(o))
	}
	return nil
}

// otherCodec is not JSON for entries.
type otherCodec struct{ cache.Codec }

func (otherCodec) Name() string { return "other" }

// hearing returns a function that rings for the keys of a message.
func (r *reader) hearing() func(keys, patterns []string) {
	known := map[string]int{}
	for key := range r.Keys {
		known[r.name(key)] = key
		known[protocol.StampKey(r.tag(key))] = key
	}
	return func(keys, _ []string) {
		for _, name := range keys {
			if key, ours := known[name]; ours {
				r.loader.evicted[key].ring()
			}
		}
	}
}

// connect returns the client. Its subscription uses a separate address if the spec has one.
func (s *spec) connect() redis.UniversalClient {
	if len(s.Cluster) > 0 {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Cluster, ContextTimeoutEnabled: true, PoolSize: 32})
	}
	options := &redis.Options{Addr: s.Redis, DB: s.DB, ContextTimeoutEnabled: true, PoolSize: 32, MaxRetries: 1}
	if s.Master != "" {
		options.Dialer = s.dialMaster
	}
	client := redis.NewClient(options)
	plant(s.Plant, client, s)
	switch {
	case s.Plant == deaf:
		return &parted{client, redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true, Dialer: deafDialer})}
	case s.Subscriber != "":
		return &parted{client, redis.NewClient(&redis.Options{Addr: s.Subscriber, ContextTimeoutEnabled: true})}
	}
	return client
}

// dialMaster connects to the server that is the master now, as a client of Sentinel does.
func (s *spec) dialMaster(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := os.ReadFile(s.Master)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, string(addr))
}

// A parted client uses a different connection for its subscription than for reads.
type parted struct {
	*redis.Client
	subscriber *redis.Client
}

func (p *parted) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return p.subscriber.Subscribe(ctx, channels...)
}

func (r *reader) close() {
	if r.cache != nil {
		_ = r.cache.Close() // the process ends
	}
	_ = r.client.Close()
	_ = r.db.Close()
	_ = r.table.close()
}

// tell hands the counts over periodically, until ctx ends.
func (r *reader) tell(ctx context.Context, tell func(tallies) error) error {
	ticker := time.NewTicker(told)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := tell(r.line()); err != nil {
				return err
			}
		}
	}
}

// line returns the counts since the last line.
func (r *reader) line() tallies {
	t := tallies{
		Process: r.Process, Pairs: r.paired.Swap(0), Reads: r.reads.Swap(0), Memory: r.memory.Swap(0), Redis: r.redis.Swap(0), Loaded: r.loaded.Swap(0), Expired: r.expired.Swap(0),
		Stale: r.stale.Swap(0), Excused: r.excused.Swap(0), Stalls: r.stalls.take(),
	}
	r.findings.take(&t)
	if r.outside != nil {
		r.outside.count(&t)
		t.Healthy = "it is not asked"
		return t
	}
	if err := r.cache.Healthy(); err != nil {
		t.Healthy = err.Error()
	}
	s := r.cache.Statistics()
	t.Refused, t.Unsettled = s.Refused-r.known.Refused, s.Unsettled-r.known.Unsettled
	t.Shadows, t.Differed = compared(s.Shadow)-compared(r.known.Shadow), s.Shadow.Differs-r.known.Shadow.Differs
	r.known = s
	return t
}

// compared returns how many shadow reads have a result.
func compared(s cache.ShadowStatistics) uint64 {
	return s.Equal + s.Gone + s.Differs + s.NotDeterministic
}
