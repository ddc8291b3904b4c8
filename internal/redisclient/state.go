package redisclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// By these a server tells that it is the cache's: workers leave beacons in its database, and listen for wake-ups there unless
// they were given another channel.
const (
	beacons     = "unstale:beacon:*"
	wakeChannel = "cache:outbox:wake"
)

// A search for beacons ends after so many requests, each of so many keys: a small database is seen as a whole.
const (
	scanRequests = 10
	scanKeys     = 1000
)

// StateRights are what CheckState needs to be allowed to do.
const StateRights = "+info +scan +pubsub|numsub"

// CheckState returns what is wrong with a place for what must not vanish, such as locks and counters: an instance that may evict it, that
// forgets it at a restart, or that is the cache's, as far as that can be told. In Cluster it asks every master.
func CheckState(ctx context.Context, client redis.UniversalClient) error {
	var mu sync.Mutex
	var faults []error
	ask := func(ctx context.Context, node *redis.Client) error {
		found := checkNode(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, found...)
		return nil
	}
	switch client := client.(type) {
	case *redis.ClusterClient:
		if err := client.ForEachMaster(ctx, ask); err != nil {
			faults = append(faults, fmt.Errorf("whether Redis is fit to keep state is not known: %w", err))
		}
	case *redis.Client:
		_ = ask(ctx, client) // it keeps what it finds
	default:
		return fmt.Errorf("whether Redis is fit to keep state is not known: a %T cannot be asked", client)
	}
	return errors.Join(faults...)
}

func checkNode(ctx context.Context, node *redis.Client) []error {
	address := node.Options().Addr
	if address == "FailoverClient" { // the client library's word
		address = "Sentinel's master"
	}
	unknown := func(err error) []error {
		return []error{fmt.Errorf("whether %s is fit to keep state is not known (the account needs %s): %w", address, StateRights, err)}
	}
	info, err := node.Info(ctx).Result()
	if err != nil {
		return unknown(err)
	}
	faults := judge(address, info)
	heard, err := node.PubSubNumSub(ctx, wakeChannel).Result()
	if err != nil {
		return append(faults, unknown(err)...)
	}
	beacon, err := findKey(ctx, node, beacons)
	switch {
	case err != nil:
		return append(faults, unknown(err)...)
	case beacon != "":
		faults = append(faults, fmt.Errorf("%s is the cache's: a worker has left %s in database %d; use an instance of its own", address, beacon, node.Options().DB))
	case heard[wakeChannel] > 0:
		faults = append(faults, fmt.Errorf("%s is the cache's: a worker listens to %s there; use an instance of its own, since databases of one share its memory", address, wakeChannel))
	}
	return faults
}

// judge returns what INFO says against a server.
func judge(address, info string) (faults []error) {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = value
	}
	switch policy := facts["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		faults = append(faults, fmt.Errorf("%s does not say what it evicts", address))
	default:
		faults = append(faults, fmt.Errorf("%s may evict what must stay (maxmemory-policy %s): use an instance with noeviction", address, policy))
	}
	if facts["aof_enabled"] != "1" {
		faults = append(faults, fmt.Errorf("%s forgets what must stay when it restarts: set appendonly yes", address))
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
