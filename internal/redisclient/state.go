package redisclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/protocol"
)

// By these a server tells that it is the cache's: workers leave beacons in its database, and listen
// for wake-ups there unless they were given another channel.
const (
	beacons     = protocol.BeaconPrefix + "*"
	wakeChannel = protocol.DefaultWakeChannel
)

// A search for beacons ends after so many requests, each of so many keys: a small database is seen
// as a whole.
const (
	scanRequests = 10
	scanKeys     = 1000
)

// StateRights are what CheckState needs to be allowed to do.
const StateRights = "+info +scan +pubsub|numsub"

// A StateFault is one thing that speaks against keeping state at a server, or, with Err, something
// that could not be found out.
type StateFault struct {
	Address string
	Says    string // after the address, as "forgets what must stay when it restarts"
	Seen    string
	Cure    string
	Err     error
}

func (f *StateFault) Error() string {
	switch {
	case f.Err == nil:
		return f.Address + " " + f.Says + " (" + f.Seen + "): " + f.Cure
	case f.Cure != "":
		return "whether " + f.Address + " is fit to keep state is not known (" + f.Cure + "): " + f.Err.Error()
	}
	return "whether " + f.Address + " is fit to keep state is not known: " + f.Err.Error()
}

func (f *StateFault) Unwrap() error { return f.Err }

// CheckState returns what is wrong with a place for what must not vanish, such as locks and
// counters: an instance that may evict it, that forgets it at a restart, or that is the cache's, as
// far as that can be told. In Cluster it asks every master.
func CheckState(ctx context.Context, client redis.UniversalClient) error {
	var mu sync.Mutex
	var faults []error
	ask := func(ctx context.Context, node *redis.Client) error {
		found := StateFaults(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range found {
			faults = append(faults, f)
		}
		return nil
	}
	switch client := client.(type) {
	case *redis.ClusterClient:
		if err := client.ForEachMaster(ctx, ask); err != nil {
			faults = append(faults, &StateFault{Address: "Redis", Err: err})
		}
	case *redis.Client:
		_ = ask(ctx, client) // it keeps what it finds
	default:
		return &StateFault{Address: "Redis", Err: fmt.Errorf("a %T cannot be asked", client)}
	}
	return errors.Join(faults...)
}

// StateFaults returns what is wrong with one server. Workers may listen to other channels than the
// default.
func StateFaults(ctx context.Context, node *redis.Client, channels ...string) []*StateFault {
	address := Address(node)
	unknown := func(err error) *StateFault {
		return &StateFault{Address: address, Cure: cmp.Or(credentials.TLSCure(err, ""), "the account needs "+StateRights), Err: err}
	}
	info, err := node.Info(ctx).Result()
	if err != nil {
		return []*StateFault{unknown(err)}
	}
	faults := judge(address, info)
	channels = append(channels, wakeChannel)
	heard, err := node.PubSubNumSub(ctx, channels...).Result()
	if err != nil {
		return append(faults, unknown(err))
	}
	beacon, err := findKey(ctx, node, beacons)
	if err != nil {
		return append(faults, unknown(err))
	}
	if beacon != "" {
		return append(faults, CacheFault(address, fmt.Sprintf("a worker has left %s in database %d", beacon, node.Options().DB)))
	}
	for _, channel := range channels {
		if heard[channel] > 0 {
			return append(faults, CacheFault(address, "a worker listens to "+channel))
		}
	}
	return faults
}

// CacheFault says that state shares a server with the cache.
func CacheFault(address, seen string) *StateFault {
	return &StateFault{Address: address, Says: isCache, Seen: seen, Cure: "use an instance of its own, since databases of one share its memory"}
}

const isCache = "is the cache's"

// IsCache reports whether it is a CacheFault.
func (f *StateFault) IsCache() bool { return f.Says == isCache }

// judge returns what INFO says against a server.
func judge(address, info string) (faults []*StateFault) {
	facts := Facts(info)
	if policy := facts["maxmemory_policy"]; policy != "noeviction" {
		faults = append(faults, &StateFault{
			Address: address, Says: "may evict what must stay", Seen: "maxmemory-policy " + cmp.Or(policy, "is not told"), Cure: "use an instance with noeviction",
		})
	}
	if aof := facts["aof_enabled"]; aof != "1" {
		faults = append(faults, &StateFault{
			Address: address, Says: "forgets what must stay when it restarts", Seen: "aof_enabled " + cmp.Or(aof, "is not told"), Cure: "set appendonly yes",
		})
	}
	return faults
}

// findKey returns a key that matches, "" if there is none among those that it looks at.
func findKey(ctx context.Context, node *redis.Client, pattern string) (string, error) {
	var cursor uint64
	for range scanRequests {
		keys, next, err := node.Scan(ctx, cursor, pattern, scanKeys).Result()
		if err != nil {
			return "", err
		}
		if len(keys) > 0 {
			return keys[0], nil
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return "", nil
}
