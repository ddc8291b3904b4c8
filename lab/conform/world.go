package conform

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	source   = "conform"
	period   = 200 * time.Millisecond // of heartbeats
	mapLease = 10 * time.Second
	holdLife = time.Minute // of tombstones
	// commandTimeout is longer than a schedule holds a command. After it, a client looks again for a
	// lease whose reply was lost.
	commandTimeout = time.Second
)

// A world is Redis, and the worker and the writer, whom the judge plays.
type world struct {
	addr    string
	number  int    // of the database
	channel string // of messages, which are global to a server
	admin   redis.UniversalClient
	cluster *rig.Cluster // nil: one server
	clock   *clock.File  // sets the clock of Redis; nil if it cannot be set
	noClock error        // why
	version string
	end     func() error      // ends a server that was started, and cleans another one
	rows    map[string]string // the database: the value of each key

	mu    sync.Mutex
	epoch string
	seq   uint64
	mute  bool          // no heartbeats
	lease time.Duration // of the map
}

// openWorld starts a Redis whose clock can be set if there is a C compiler, or uses the one of a
// URL, which must be empty.
func openWorld(ctx context.Context, url, dir string) (w *world, err error) {
	w = &world{channel: keyPrefix + rand.Text(), rows: map[string]string{}, epoch: rand.Text(), lease: mapLease}
	if url == "" {
		err = w.start(ctx, dir)
	} else {
		err = w.connect(ctx, url)
	}
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

func (w *world) start(ctx context.Context, dir string) error {
	var library string
	library, w.noClock = clock.Library(dir)
	node, err := rig.StartNode(ctx, rig.NodeOptions{Library: library})
	if err != nil {
		return err
	}
	w.clock, w.admin, w.addr, w.end = node.Clock, node.Client, node.Server.Addr(), node.Close
	return nil
}

// connect uses a server that somebody else has started.
func (w *world) connect(ctx context.Context, url string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	w.addr, w.number, w.admin = options.Addr, options.DB, redis.NewClient(options)
	w.noClock = errors.New("it belongs to another process")
	n, err := w.admin.DBSize(ctx).Result()
	if err == nil && n > 0 {
		err = fmt.Errorf("%s has %d keys: the judge needs an empty database of a scratch server, where it plays the worker", options.Addr, n)
	}
	if err != nil {
		return errors.Join(err, w.admin.Close())
	}
	w.end = func() error { return errors.Join(w.clean(context.WithoutCancel(ctx)), w.admin.Close()) }
	return nil
}

// prepare finds out the version, and loads the scripts.
func (w *world) prepare(ctx context.Context) error {
	info, err := w.admin.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	w.version = cmp.Or(info["Server"]["valkey_version"], info["Server"]["redis_version"])
	for _, script := range scripts {
		if err := w.admin.ScriptLoad(ctx, script.text).Err(); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what the run has stored.
func (w *world) clean(ctx context.Context) error {
	names := []string{protocol.AliveKey("")}
	found := w.admin.Scan(ctx, 0, "*"+keyPrefix+"*", 1000).Iterator()
	for found.Next(ctx) {
		names = append(names, found.Val())
	}
	if err := found.Err(); err != nil {
		return err
	}
	for some := range slices.Chunk(names, 500) {
		if err := w.admin.Unlink(ctx, some...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// heartbeats writes unstale:alive and sends heartbeats until the context ends.
func (w *world) heartbeats(ctx context.Context) {
	sleep.Every(ctx, period, func(ctx context.Context) { _ = w.heartbeat(ctx) }) // a client then closes its cache, and a rule says so
}

func (w *world) heartbeat(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute {
		return nil
	}
	now, err := w.admin.Time(ctx).Result()
	if err != nil {
		return err
	}
	alive := protocol.Alive{Time: now.UnixMicro(), Epoch: w.epoch, Lease: w.lease.Milliseconds()}
	if w.cluster == nil {
		if err := w.admin.HSet(ctx, protocol.AliveKey(""), source, alive.String()).Err(); err != nil {
			return err
		}
	}
	return w.publish(ctx, protocol.Message{Beat: &protocol.Beat{Source: source, Lease: w.lease.Milliseconds(), First: w.seq == 0, Behind: 1, Alive: w.cluster == nil}}, false)
}

// publish numbers a message and sends it, unless it gets lost. The caller holds mu.
func (w *world) publish(ctx context.Context, m protocol.Message, lost bool) error {
	w.seq++
	m.Epoch, m.Seq, m.At = w.epoch, w.seq, time.Now()
	if lost {
		return nil
	}
	return w.admin.Publish(ctx, w.channel, m.Append(nil, protocol.FormatEvent)).Err()
}

// message publishes keys and patterns as a worker does after its UNLINK.
func (w *world) message(ctx context.Context, keys, patterns []string, lost bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.publish(ctx, protocol.Message{Keys: keys, Patterns: patterns}, lost)
}

// silence stops the heartbeats, or lets them go on.
func (w *world) silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = on
}

// limit changes the lease of the map.
func (w *world) limit(ctx context.Context, lease time.Duration) error {
	w.mu.Lock()
	w.lease = lease
	w.mu.Unlock()
	return w.heartbeat(ctx)
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
func (w *world) invalidate(ctx context.Context, name string, hold bool) error {
	if hold {
		tombstone, _ := protocol.HoldKey(name)
		if err := w.admin.Set(ctx, tombstone, "1", holdLife).Err(); err != nil {
			return err
		}
	}
	lease, _ := protocol.LeaseKey(name)
	err := w.admin.Unlink(ctx, lease, name).Err()
	if redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK") { // in a slot on its way
		err = errors.Join(w.admin.Unlink(ctx, lease).Err(), w.admin.Unlink(ctx, name).Err())
	}
	return err
}

// step moves the clock of Redis. The worker writes its time at once.
func (w *world) step(ctx context.Context, by time.Duration) error {
	w.clock.Set(by)
	return w.heartbeat(ctx)
}

// usable returns the value that a reader would take from Redis: "" if there is none.
func (w *world) usable(ctx context.Context, key string) (value string, err error) {
	text, err := w.admin.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	now, err := w.admin.Time(ctx).Result()
	if err != nil {
		return "", err
	}
	var e entryText
	if json.Unmarshal([]byte(text), &e) != nil || json.Unmarshal(e.Value, &value) != nil || e.Expiry <= now.UnixMilli() {
		return "", nil
	}
	for tag, version := range e.Tags {
		current, err := w.admin.Get(ctx, protocol.StampKey(tag)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return "", err
		}
		if current != version {
			return "", nil
		}
	}
	return value, nil
}
