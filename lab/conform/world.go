package conform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

// What a client is told in hello.
const (
	source    = "conform"
	keyPrefix = "conform:" // of all keys of a run
	channel   = "conform:messages"
	period    = 200 * time.Millisecond // of heartbeats
	mapLease  = 10 * time.Second
	valueLife = 10 * time.Minute
	// commandTimeout is longer than a schedule holds a command. After it, a client looks again for a
	// lease whose reply was lost.
	commandTimeout = time.Second
)

const (
	epoch    = "conform"
	holdLife = time.Minute // of tombstones
)

// A world is a Redis, and the worker and the writer, whom the judge plays. An error of Redis ends
// the run: see must.
type world struct {
	ctx     context.Context
	admin   redis.UniversalClient
	addr    string
	cluster *rig.Cluster      // nil: one server
	clock   *clock.File       // sets the clock of Redis; nil if it cannot be set
	rows    map[string]string // the database: the value of each key

	beating sync.WaitGroup // until the context ends
	mu      sync.Mutex
	seq     uint64
	mute    bool          // no heartbeats
	lease   time.Duration // of the map
}

// openWorld returns a world whose heartbeats have begun. The caller ends it.
func openWorld(ctx context.Context, node *rig.Node, cluster *rig.Cluster) *world {
	w := &world{ctx: ctx, rows: map[string]string{}, cluster: cluster, lease: mapLease}
	if cluster != nil {
		w.admin, w.addr = cluster.Client, cluster.Addrs()[0]
	} else {
		w.admin, w.addr, w.clock = node.Client, node.Server.Addr(), node.Clock
	}
	w.beating.Go(func() {
		sleep.Every(ctx, period, func(context.Context) { _ = w.heartbeat() }) // a client then closes its cache, and a rule says so
	})
	return w
}

// stopped is the error that ends the run, as the value of a panic.
type stopped struct{ error }

// must ends the schedule if there is an error, as in a test: attempt returns it.
func must(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

// attempt plays something, and returns the error that ended it.
func attempt(play func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case stopped:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	play()
	return nil
}

// found returns what Redis has, or the zero value if it has nothing.
func found[T any](value T, err error) T {
	if !errors.Is(err, redis.Nil) {
		must(err)
	}
	return value
}

// now returns the time of Redis.
func (w *world) now() time.Time { return found(w.admin.Time(w.ctx).Result()) }

// prepare loads the scripts, and returns the version of Redis.
func (w *world) prepare() string {
	for _, script := range scripts {
		must(w.admin.ScriptLoad(w.ctx, script.text).Err())
	}
	info := found(w.admin.InfoMap(w.ctx, "server").Result())["Server"]
	return cmp.Or(info["valkey_version"], info["redis_version"])
}

// heartbeat writes unstale:alive and sends a heartbeat.
func (w *world) heartbeat() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute {
		return nil
	}
	beat := &protocol.Beat{Source: source, Lease: w.lease.Milliseconds(), First: w.seq == 0, Behind: 1, Alive: w.cluster == nil}
	if beat.Alive {
		now, err := w.admin.Time(w.ctx).Result()
		if err != nil {
			return err
		}
		alive := protocol.Alive{Time: now.UnixMicro(), Epoch: epoch, Lease: beat.Lease}
		if err := w.admin.HSet(w.ctx, protocol.AliveKey(""), source, alive.String()).Err(); err != nil {
			return err
		}
	}
	return w.publish(protocol.Message{Beat: beat}, false)
}

// publish numbers a message and sends it, unless it gets lost. The caller holds mu.
func (w *world) publish(m protocol.Message, lost bool) error {
	w.seq++
	m.Epoch, m.Seq, m.At = epoch, w.seq, time.Now()
	if lost {
		return nil
	}
	return w.admin.Publish(w.ctx, channel, m.Append(nil, protocol.FormatEvent)).Err()
}

// message publishes keys and patterns as a worker does after its UNLINK.
func (w *world) message(keys, patterns []string, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	must(w.publish(protocol.Message{Keys: keys, Patterns: patterns}, lost))
}

// silence stops the heartbeats, or lets them go on.
func (w *world) silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = on
}

// limit changes the lease of the map.
func (w *world) limit(lease time.Duration) {
	w.mu.Lock()
	w.lease = lease
	w.mu.Unlock()
	must(w.heartbeat())
}

// step moves the clock of Redis. The worker writes its time at once.
func (w *world) step(by time.Duration) {
	w.clock.Set(by)
	must(w.heartbeat())
}

// rowsOf returns the rows of keys, without those that do not exist.
func (w *world) rowsOf(keys []string) map[string]string {
	found := map[string]string{}
	for _, key := range keys {
		if value, ok := w.rows[key]; ok {
			found[key] = value
		}
	}
	return found
}

// invalidate does what a worker does with a name: a key of the map, or a tag version. hold sets the
// tombstone before.
func (w *world) invalidate(name string, hold bool) {
	if hold {
		tombstone, _ := protocol.HoldKey(name)
		must(w.admin.Set(w.ctx, tombstone, "1", holdLife).Err())
	}
	lease, _ := protocol.LeaseKey(name)
	err := w.admin.Unlink(w.ctx, lease, name).Err()
	if redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK") { // in a slot on its way
		err = errors.Join(w.admin.Unlink(w.ctx, lease).Err(), w.admin.Unlink(w.ctx, name).Err())
	}
	must(err)
}

// usable returns the value that a reader would take from Redis: "" if there is none.
func (w *world) usable(key string) (value string) {
	var e entryText
	text := found(w.admin.Get(w.ctx, key).Bytes())
	if json.Unmarshal(text, &e) != nil || json.Unmarshal(e.Value, &value) != nil || e.Expiry <= w.now().UnixMilli() {
		return ""
	}
	for tag, version := range e.Tags {
		if found(w.admin.Get(w.ctx, protocol.StampKey(tag)).Result()) != version {
			return ""
		}
	}
	return value
}
