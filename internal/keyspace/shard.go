package keyspace

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// shardsLife is how long the list of shards is remembered: asking costs a round trip. It is asked for again after an
// outage.
const shardsLife = time.Second

// awayLife is how long a master that did not answer counts as away, beyond the time that three commands may take to
// find that out again. CheckBeacon, called once a second, finds out sooner that it is back, or that it is still away,
// and waits for awayPing at most.
const (
	awayLife = 2 * time.Second
	awayPing = 500 * time.Millisecond
)

// leastTime is what a pipeline needs to be worth sending. Later, masters would look away that were never asked in
// earnest.
const leastTime = 50 * time.Millisecond

var errNoTime = errors.New("no time is left to ask")

// A shard is a master of a Cluster. Outside of Cluster there is one, whose fields are empty.
type shard struct {
	tag  string // a hash tag whose slot the master has
	addr string
}

// shards are the masters, and which of them are away: one that does not answer concerns the keys that it has, and no
// others.
type shards struct {
	mu   sync.Mutex
	list []shard
	read time.Time
	away map[string]absence // by address
	life time.Duration      // of an absence
	// moved are the tags that are new because slots have moved: see followMoves.
	moved map[string]bool
	// complete: the last comparison found nothing missing, and nothing has cast doubt on that since.
	complete bool
}

// An absence says why a master is away, and since when nobody has asked it.
type absence struct {
	*Outage
	noted time.Time
}

// of is why a master is away, or nil. The caller holds the lock.
func (s *shards) of(addr string) *Outage {
	if a, ok := s.away[addr]; ok && time.Since(a.noted) < s.life {
		return a.Outage
	}
	return nil
}

// shards lists the masters of a Cluster with their hash tags. A master that is replaced by its replica keeps its tag.
// One whose slots move may get another, under which its beacon starts again: see followMoves.
func (k *Keyspace) listShards(ctx context.Context) ([]shard, error) {
	if k.cluster == nil {
		return []shard{{}}, nil
	}
	k.shards.mu.Lock()
	list, read := k.shards.list, k.shards.read
	k.shards.mu.Unlock()
	if time.Since(read) < shardsLife {
		return list, nil
	}
	masters, err := k.masters(ctx)
	if err != nil {
		return nil, err
	}
	list = nil
	found := map[*redis.Client]bool{}
	for i := 0; len(found) < len(masters) && i < protocol.SlotCount; i++ {
		tag := strconv.Itoa(i)
		m, err := k.master(ctx, tag)
		if err != nil {
			return nil, err
		}
		if !found[m] {
			found[m] = true
			list = append(list, shard{tag, m.Options().Addr})
		}
	}
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	k.shards.followMoves(list)
	k.shards.list, k.shards.read = list, time.Now()
	return list, nil
}

// present are the shards that are not away; all of them, if none is left.
func (k *Keyspace) present(ctx context.Context) ([]shard, error) {
	list, err := k.listShards(ctx)
	if err != nil || k.cluster == nil {
		return list, err
	}
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	if len(k.shards.away) == 0 {
		return list, nil
	}
	var present []shard
	for _, s := range list {
		if k.shards.of(s.addr) == nil {
			present = append(present, s)
		}
	}
	if len(present) == 0 {
		return list, nil
	}
	return present, nil
}

// Away lists the masters of a Cluster that did not answer last, by address. What concerns their keys fails at once;
// CheckBeacon finds out when they are back.
func (k *Keyspace) Away() []string {
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	var list []string
	for addr := range k.shards.away {
		if k.shards.of(addr) != nil {
			list = append(list, addr)
		}
	}
	slices.Sort(list)
	return list
}

func (k *Keyspace) isAway(addr string) bool {
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	return k.shards.of(addr) != nil
}

// markAway notes that a master is away.
func (k *Keyspace) markAway(addr string, o *Outage) {
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	if k.shards.away == nil {
		k.shards.away = map[string]absence{}
	}
	k.shards.away[addr] = absence{o, time.Now()}
	if o.State == StateMoving { // which says nothing about its data
		return
	}
	k.shards.complete = false
	for _, s := range k.shards.list {
		if s.addr == addr {
			delete(k.shards.moved, s.tag)
		}
	}
}

// markAwayFor notes that the master of a key is away.
func (k *Keyspace) markAwayFor(ctx context.Context, key string, o *Outage) error {
	m, err := k.master(ctx, key)
	if err == nil {
		k.markAway(m.Options().Addr, o)
	}
	return err
}

// awayFor is why a key's master is away, or nil.
func (k *Keyspace) awayFor(ctx context.Context, key string) (*Outage, error) {
	k.shards.mu.Lock()
	some := len(k.shards.away) > 0
	k.shards.mu.Unlock()
	if !some {
		return nil, nil
	}
	m, err := k.master(ctx, key)
	if err != nil {
		return nil, err
	}
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	return k.shards.of(m.Options().Addr), nil
}

// lookForAway pings the masters that are away, and forgets those that are no longer masters.
func (k *Keyspace) lookForAway(ctx context.Context) error {
	if len(k.Away()) == 0 {
		return nil
	}
	masters, err := k.masters(ctx)
	if err != nil {
		return err
	}
	still := map[string]absence{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, m := range masters {
		if !k.isAway(m.Options().Addr) {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, awayPing)
			defer cancel()
			if err := m.Ping(ctx).Err(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				still[m.Options().Addr] = absence{outage(err), time.Now()}
			}
		})
	}
	group.Wait()
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	k.shards.away, k.shards.read = still, time.Time{}
	return nil
}

// shardOutage is the Outage that err is of one master of a Cluster, or nil where it is not an error of one master
// alone. One that kept the caller until its deadline counts, so that it does not do so again.
func (k *Keyspace) shardOutage(ctx context.Context, err error) *Outage {
	if k.cluster == nil || errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errNoTime) {
		return nil
	}
	o := k.outage(ctx, err)
	switch o.State {
	case StateNetwork, StateTimeout, StateLoading, StateReadOnly, StateMasterDown, StateClusterDown, StateMoving,
		StateOOM, StateBusy, StateMaxClients, StateProtected, StateMisconf, StateNoReplicas:
		return o
	}
	return nil
}

// allAway reports whether no master is left, of those that were there last.
func (k *Keyspace) allAway() bool {
	k.shards.mu.Lock()
	defer k.shards.mu.Unlock()
	return !slices.ContainsFunc(k.shards.list, func(s shard) bool { return k.shards.of(s.addr) == nil })
}

// isOutage reports whether err is an *Outage.
func isOutage(err error) bool {
	var o *Outage
	return errors.As(err, &o)
}
