package lock

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/lock/internal/locking"
)

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
	if prefix == "" {
		prefix = "lock:"
	}
	i := &instance{client: client, prefix: prefix, mark: mark, config: o.Config, ttl: o.Config.TTL.Milliseconds()}
	i.tails = [2]any{" " + o.Config.Holder, waits + " " + o.Config.Holder}
	i.wakes = wakes{instance: i, most: pool / 4, launch: o.Launch, pops: map[string]*pop{}}
	return i
}

const wakeSuffix = ":wake"

func (i *instance) key(name string) string     { return i.prefix + "{" + name + "}" }
func (i *instance) wakeKey(name string) string { return i.prefix + "{" + name + "}" + wakeSuffix }

// text returns how a value begins that is the claim's.
func (i *instance) text(c locking.Claim) string { return c.Token.String() + i.mark + " " }

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
		said, err := i.runOnce(ctx, acquireScript, acquireLua, i.key(c.Name), i.text(c), i.ttl, notBefore, notAfter, tail, asks)
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

func (i *instance) extend(ctx context.Context, c locking.Claim) (bool, error) {
	return extendScript.Run(ctx, i.client, []string{i.key(c.Name)}, i.text(c), i.ttl).Bool()
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
	said, err := releaseScript.Run(ctx, i.client, []string{key, wakeKey}, i.text(c), lasts).Int()
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
