package verify

import (
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lab/conform"
)

// A Plant is a deliberate bug that shows whether the checker works. It sits at an edge, in the
// client or loader of a reader or between the servers: neither package cache nor the worker has
// code for it.
type Plant struct {
	Name, Breaks string
	phase        string // that reveals it
}

// The names of plants that other files use.
const (
	bareFill    = "bare-fill"
	leftLease   = "left-lease"
	lateStamps  = "late-stamps"
	oldSnapshot = "old-snapshot"
	falseBeacon = "false-beacon"
	deaf        = "deaf"
	forgedBeats = "forged-beats"
	oldBirth    = "old-birth"
)

// Plants are all plants.
var Plants = []Plant{
	{bareFill, "a fill needs a lease that is still there: fills are plain SETs", "calm"},
	{leftLease, "an UNLINK takes the lease with the value: leases have a name that the worker does not know", "calm"},
	{lateStamps, "stamps are read before the load: those in entries are from after it", "calm"},
	{oldSnapshot, "a loader reads outside an older snapshot: it is in a transaction that began up to three seconds ago", "calm"},
	{falseBeacon, "beacons reveal lost writes: the beacon is restored after Redis came back with an old snapshot", "old snapshot"},
	{deaf, "L1 keeps only values whose messages arrive: a proxy rewrites messages to name other keys, with their numbers", "calm"},
	{forgedBeats, "only workers send heartbeats: another process continues them when all workers have ended", "no worker"},
	{oldBirth, "an entry has the time of its lease: entries get a time one minute earlier", "calm"},
}

func plantNames() (names []string) {
	for _, p := range Plants {
		names = append(names, p.Name)
	}
	return names
}

// plant adds the bug to a reader's client, if it is one of commands: most are bugs that the judge of
// readers must find too.
func plant(name string, client *redis.Client, s *spec) {
	if name == leftLease {
		name = conform.OwnLease
	}
	if name != "" {
		conform.Spoil(name, client, redis.NewClient(&redis.Options{Addr: s.Redis}))
	}
}
