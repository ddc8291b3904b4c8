package lock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/lock/internal/locking"
)

// Redis is the Backend of one Redis, 6.0 or later: a server, Sentinel or Cluster. Use a Redis that
// evicts nothing and keeps an AOF, not the Redis of the cache. A failover or a restart may lose
// locks. Guard makes that harmless.
type Redis struct {
	// Client is used at masters, and not closed. It needs ContextTimeoutEnabled, and should have at
	// least eight connections: a quarter of them may wait for locks. Set DialerRetries to 1 to see
	// why a connection fails: by default go-redis dials for longer than Timeout, and errors show
	// only the timeout. A Ring is refused, since it maps a name to another server when one is
	// unavailable.
	Client redis.UniversalClient

	// Prefix is put before every key: the lock "a" is PREFIX{a}, and its waiters listen to
	// PREFIX{a}:wake. It must not have braces. Names in MySQL do not include it: Lockers of one
	// database need different names. Zero: "lock:".
	Prefix string
}

// Opener implements Backend.
func (r Redis) Opener() Opener { return locking.NewOpener(r.open, nil) }

func (r Redis) open(o locking.Opening) (locking.Service, error) {
	if err := checkPrefix("Redis", r.Prefix); err != nil {
		return nil, err
	}
	pool, err := checkClient("Redis.Client", r.Client)
	if err != nil {
		return nil, err
	}
	return &redisService{newInstance(r.Client, r.Prefix, "", pool, o)}, nil
}

// checkPrefix refuses braces, since Redis Cluster derives the slot from them.
func checkPrefix(backend, prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s.Prefix is %q: it must not have braces", backend, prefix)
	}
	return nil
}

// checkClient refuses clients that cannot keep locks, and returns how many connections one opens to
// a server.
func checkClient(field string, c redis.UniversalClient) (pool int, err error) {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return 0, errors.New(field + " is nil: give a client of go-redis")
	}
	switch client := c.(type) {
	case interface{ Options() *redis.RingOptions }:
		return 0, errors.New(field + " is a Ring, which maps a name to another server when one is unavailable: use a single server, Sentinel or Cluster")
	case interface{ Options() *redis.ClusterOptions }:
		pool = client.Options().PoolSize
	case interface{ Options() *redis.Options }:
		pool = client.Options().PoolSize
	}
	if ends, _ := redisclient.EndsCalls(c); !ends {
		return 0, errors.New(field + " ignores the deadlines of contexts: set ContextTimeoutEnabled in its options, and no timeout below 0")
	}
	return pool, nil
}

// redisService is a Redis at work.
type redisService struct{ *instance }

// Acquire implements locking.Service.
func (s *redisService) Acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	told, err := s.instance.acquire(ctx, c, wait)
	told.Lost = unanswered(err)
	return told, err
}

// unanswered reports whether a request has got no reply and may still arrive.
func unanswered(err error) bool {
	return err != nil && !errors.As(err, new(redis.Error)) && !errors.Is(err, errClock) && !errors.Is(err, errShort) && !errors.Is(err, errTwin)
}

// Release implements locking.Service.
func (s *redisService) Release(ctx context.Context, c locking.Claim) (bool, error) {
	was, _, err := s.instance.release(ctx, c, true)
	return was, err
}

// Lapsed implements locking.Service: the lease has ended by itself.
func (s *redisService) Lapsed(locking.Claim) {}

// Yields implements locking.Service: those who are woken ask as early as whoever has released.
func (s *redisService) Yields(locking.Claim) bool { return false }

// Released implements locking.Service.
func (s *redisService) Released(c locking.Claim) (<-chan struct{}, func() bool) {
	return s.wakes.listen(c.Name)
}

// PassOn implements locking.Service.
func (s *redisService) PassOn(c locking.Claim) { s.instance.passOn(c.Name) }

// Close implements locking.Service: the client is the caller's.
func (s *redisService) Close() {}

// clockSlack is how much slower than this process's clock a server clock may run between two
// answers, or be set back, undetected.
const clockSlack = time.Second

// clockDrift is an inverse fraction: a server clock may have run slower by that than the clock of
// this process since the last answer. After a long pause the window is empty, and the server
// returns its time again.
const clockDrift = 1000

// clocks keep the difference between the clock of each server and the clock of this process, in ms.
//
// An attempt contains the window for locking, by the clock of the server. So a late copy of it is
// refused without a round trip for the time. If a clock was set, the next attempt misses its
// window, and the answer has the new time. Only a request that is sent before such a jump and
// arrives after it can be misjudged. Then a late copy may lock once for a TTL, without a holder.
type clocks struct {
	mu      sync.Mutex
	servers map[string]offset
}

// An offset lies between two bounds: the server has read its clock after the question was sent and
// before the answer came. A window ends by the lower one, so it never outlasts the caller.
type offset struct {
	low, high int64
	answered  time.Duration
}

// learn takes the time that an answer tells.
func (c *clocks) learn(node string, server int64, sent, answered time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[node] = offset{low: server - answered.Milliseconds() - 1, high: server - sent.Milliseconds(), answered: answered}
}

// window returns when an attempt that is sent at sent may lock, if its caller waits for patience.
// The window of an unknown server is in the past, which makes the server return its time.
func (c *clocks) window(node string, sent, patience time.Duration) (notBefore, notAfter int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.servers[node]
	if !ok {
		return 0, 0
	}
	at := sent.Milliseconds()
	drift := (sent - known.answered).Milliseconds() / clockDrift
	return at + known.low - clockSlack.Milliseconds(), at + known.low + patience.Milliseconds() - max(drift, 0)
}

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string

	acquireScript = redis.NewScript(acquireLua)
	extendScript  = redis.NewScript(extendLua)
	releaseScript = redis.NewScript(releaseLua)
)

// An instance is one Redis that keeps locks: the only one, or one of a Redlock.
type instance struct {
	client redis.UniversalClient
	prefix string
	mark   string // follows a token there
	config locking.Config
	ttl    any    // in ms, as scripts take it
	tails  [2]any // end of the value of a lock; the second one if there are waiters
	clocks clocks
	wakes  wakes
}

// newInstance makes an instance of a client whose pool has so many connections.
func newInstance(client redis.UniversalClient, prefix, mark string, pool int, o locking.Opening) *instance {
	i := &instance{client: client, prefix: cmp.Or(prefix, "lock:"), mark: mark, config: o.Config, ttl: o.Config.TTL.Milliseconds()}
	i.clocks.servers = map[string]offset{}
	i.tails = [2]any{" " + o.Config.Holder, waits + " " + o.Config.Holder}
	i.wakes = wakes{instance: i, most: pool / 4, launch: o.Launch, pops: map[string]*pop{}}
	return i
}

const wakeSuffix = ":wake"

func (i *instance) key(name string) string     { return i.prefix + "{" + name + "}" }
func (i *instance) wakeKey(name string) string { return i.prefix + "{" + name + "}" + wakeSuffix }

// valuePrefix returns how a value begins that is the claim's.
func (i *instance) valuePrefix(c locking.Claim) string { return c.Token.String() + i.mark + " " }

// waits follows the time in the value of a lock that has waiters: its release wakes one of them.
const waits = "w"

var errClock = errors.New("ask Redis: its clock was set, again and again, or its answers take longer than Timeout")

// errShort is wrapped where a caller's deadline, and not Timeout, has ended the questions.
var errShort = fmt.Errorf("ask Redis: the context ends too soon for an answer: %w", context.DeadlineExceeded)

// acquire implements the Acquire of a locking.Service. It asks at most three times: a server whose
// clock is unknown, or was set, returns its time.
func (i *instance) acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	node := i.node(ctx, c.Name)
	tail, asks := i.tails[0], 0
	if c.Waited { // others may wait too
		tail = i.tails[1]
	}
	if wait {
		asks = 1
	}
	sent := c.Asked
	short := i.patience(ctx) < i.config.Timeout*9/10
	for range 3 {
		notBefore, notAfter := i.clocks.window(node, sent, i.patience(ctx))
		said, err := i.runOnce(ctx, acquireScript, acquireLua, i.key(c.Name), i.valuePrefix(c), i.ttl, notBefore, notAfter, tail, asks)
		if err != nil {
			return locking.Answer{}, fmt.Errorf("ask Redis: %w", credentials.WithTLSCure(err, ""))
		}
		server, acquired := said.(int64)
		parts, _ := said.([]any)
		if len(parts) >= 2 {
			server, _ = parts[1].(int64)
		} else if !acquired {
			return locking.Answer{}, fmt.Errorf("ask Redis: it answers %v", said)
		}
		i.clocks.learn(node, server, sent, locking.Now())
		switch {
		case acquired:
			return locking.Answer{Acquired: true}, nil
		case parts[0] == "taken" && len(parts) == 4:
			value, _ := parts[2].(string)
			left, _ := parts[3].(int64)
			return taken(value, server, left), nil
		}
		sent = locking.Now()
	}
	if short {
		return locking.Answer{}, errShort
	}
	return locking.Answer{}, errClock
}

// once is a command that the client does not send again if it gets no reply: a copy could arrive
// after the release.
type once struct{ redis.Cmder }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// runOnce runs a script as Script.Run does, and sends it once.
func (i *instance) runOnce(ctx context.Context, script *redis.Script, text, key string, args ...any) (any, error) {
	send := func(command, what string) (any, error) {
		cmd := redis.NewCmd(ctx, append([]any{command, what, 1, key}, args...)...)
		cmd.SetFirstKeyPos(3)
		_ = i.client.Process(ctx, once{cmd})
		return cmd.Result()
	}
	said, err := send("evalsha", script.Hash())
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send("eval", text)
	}
	return said, err
}

// patience returns for how long a caller waits for an answer.
func (i *instance) patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(i.config.Timeout, time.Until(end))
	}
	return i.config.Timeout
}

// node names the server that has a name, since each has its own clock.
func (i *instance) node(ctx context.Context, name string) string {
	cluster, ok := i.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(ctx, i.key(name))
	if err != nil {
		return "" // the script returns the error
	}
	return master.Options().Addr
}

// taken parses the value of another holder: token, start in ms, name.
func taken(value string, server, left int64) locking.Answer {
	a := locking.Answer{Token: value, Left: time.Duration(left) * time.Millisecond}
	parts := strings.SplitN(value, " ", 3)
	if len(parts) != 3 {
		return a
	}
	since, err := strconv.ParseInt(strings.TrimSuffix(parts[1], waits), 10, 64)
	if err != nil {
		return a
	}
	a.Token, a.Holder, a.Since, a.Held = parts[0], parts[2], time.UnixMilli(since), time.Duration(server-since)*time.Millisecond
	return a
}

// Extend implements that of a locking.Service.
func (i *instance) Extend(ctx context.Context, c locking.Claim) (bool, error) {
	return extendScript.Run(ctx, i.client, []string{i.key(c.Name)}, i.valuePrefix(c), i.ttl).Bool()
}

// release implements the Release of a locking.Service. With wake it wakes a waiter, if there is
// one. waited reports whether there is.
func (i *instance) release(ctx context.Context, c locking.Claim, wake bool) (was, waited bool, err error) {
	lasts := any(0)
	if wake {
		lasts = i.ttl
	}
	wakeKey := i.wakeKey(c.Name)
	key := strings.TrimSuffix(wakeKey, wakeSuffix)
	said, err := releaseScript.Run(ctx, i.client, []string{key, wakeKey}, i.valuePrefix(c), lasts).Int()
	return said > 0, said == 2, err
}

// passOn implements the PassOn of a locking.Service.
func (i *instance) passOn(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), i.config.Timeout)
	defer cancel()
	_, _ = i.wake(ctx, name) // others ask by themselves after a while
}

// wake wakes one waiter and returns true, or the next one that comes within TTL.
func (i *instance) wake(ctx context.Context, name string) (woken bool, err error) {
	var left *redis.BoolCmd
	_, err = i.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(ctx, i.wakeKey(name)) // one is enough
		pipe.RPush(ctx, i.wakeKey(name), "1")
		left = pipe.PExpire(ctx, i.wakeKey(name), i.config.TTL) // finds nothing that a BLPOP has taken
		return nil
	})
	return !left.Val(), err
}

// addr returns the address of an instance of Redlock.
func (i *instance) addr() string { return i.client.(*redis.Client).Options().Addr }

// popTime is how long a BLPOP waits, or twice that: go-redis sends whole seconds. Redis serves the
// oldest one first. If all waited equally long, the same ones could always end before their turn.
const popTime = time.Second

// wakes are the BLPOPs of this process that wait for releases: at most one per name, and few enough
// to leave connections for extending locks.
type wakes struct {
	instance *instance
	most     int
	launch   func(func()) bool

	mu   sync.Mutex
	pops map[string]*pop
}

// A pop is one BLPOP. It outlives a waiter that gives up, for the next one.
type pop struct {
	ended chan struct{} // closed at its end
	heard bool          // there is a waiter
	woken bool          // by a release, while there was a waiter: the waiter asks
}

// listen implements the Released of a locking.Service.
func (w *wakes) listen(name string) (<-chan struct{}, func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pops[name]
	if p == nil {
		if len(w.pops) >= w.most {
			return nil, locking.NotWoken
		}
		p = &pop{ended: make(chan struct{})}
		if !w.launch(func() { w.pop(name, p) }) {
			return nil, locking.NotWoken
		}
		w.pops[name] = p
	}
	p.heard = true
	return p.ended, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.heard = false
		return p.woken
	}
}

// pop waits, and passes on a wake-up if this process has no waiter left.
func (w *wakes) pop(name string, p *pop) {
	lasts := popTime * time.Duration(1+rand.N(2))
	ctx, cancel := context.WithTimeout(context.Background(), lasts+popTime)
	defer cancel()
	began := locking.Now()
	_, err := w.instance.client.BLPop(ctx, lasts, w.instance.wakeKey(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		// otherwise a Redis that refuses BLPOP would be asked without a pause
		time.Sleep(popTime - min(popTime, locking.Now()-began))
	}
	w.mu.Lock()
	delete(w.pops, name)
	p.woken = err == nil && p.heard
	close(p.ended)
	w.mu.Unlock()
	if err == nil && !p.woken {
		w.instance.passOn(name)
	}
}
