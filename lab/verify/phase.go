package verify

import (
	"context"
	"time"
)

const (
	longTTL      = 5 * time.Minute
	shortTTL     = 3 * time.Second // if no worker runs
	jitter       = 115             // maximum TTL of a value, in percent of the configured one
	calmTurns    = 12              // a calm turn is this many times longer
	healPatience = time.Minute
	deafness     = 4 * time.Second // until L1 closes without heartbeats
	noticed      = 5 * time.Second // until readers leave a server that workers have left
	replicaLife  = 4 * time.Second // until readers leave a replica at the address of the master
)

// A phase is a kind of fault that occurs while keys are written and read, and the bound that holds
// meanwhile.
type phase struct {
	name  string
	bound time.Duration // from the commit; 0: the end of the requested sweeps
	says  string        // the bound as text, as in the design
	kinds []kind
	ttl   time.Duration
	// play breaks something, keeps it broken and repairs it. Nil: nothing breaks.
	play func(ctx context.Context, t *turn) error
	// through makes readers and workers reach Redis over a link that can lead to another server.
	through bool
	// surviving makes readers keep their connections after a failover: only new ones lead to the
	// new master.
	surviving bool
	// database is the number of the Redis database of readers. Workers use 0.
	database int
	// astray reports whether readers may use another server or database than the workers. Reads
	// with a token then have the bound of the phase, and no stronger one.
	astray bool
	// polite makes every second reader only call Get, without L1: Redis refuses it nothing.
	polite bool
	// lossy reports whether Redis loses leases. A refused fill then proves no race.
	lossy bool
	// parted makes readers subscribe over the disturbed link.
	parted bool
	// jumps reports whether clocks of Redis are set.
	jumps bool
	on    nodes
	// frozen reports whether readers are stopped on purpose. That pause excuses nothing.
	frozen bool
	grace  time.Duration // after a window; reads in it are ignored
	times  int           // length factor of a turn
	stock  int           // values in each reader's L1, in addition to the keys
	// a quarter of the reads and writes, for staleness without a busy machine
	light bool
}

var (
	exact = []kind{item, item, tagged}
	swept = []kind{list, member}
	holds = []kind{item, held, tagged}
)

// nodes are the servers that a phase needs.
type nodes int

const (
	single nodes = iota // and its replica
	anywhere
	inCluster
)

// phases are all phases, in the order of a round.
var phases = []phase{
	{name: "light load", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, light: true},
	{name: "calm", on: anywhere, bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, times: calmTurns},
	{name: "worker killed", on: anywhere, bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: killWorker},
	{name: "worker frozen", bound: claimTimeout + time.Second, says: "claim timeout + 1 s", kinds: exact, ttl: longTTL, play: freezeWorker},
	{name: "redis empty", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: emptyRedis, lossy: true},
	{name: "old snapshot", bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: oldRedis, lossy: true, grace: time.Second},
	{name: "failover", bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: failOver, through: true, lossy: true, grace: time.Second},
	{name: "subscriber cut", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: cutSubscriber, parted: true},
	{name: "subscriber frozen", bound: deafness, says: "4 s", kinds: exact, ttl: longTTL, play: freezeSubscriber, parted: true},
	{name: "reader frozen", bound: deafness, says: "4 s; thaw + 0.1 s", kinds: exact, ttl: longTTL, play: freezeReader, frozen: true, grace: 100 * time.Millisecond},
	{name: "master demoted", bound: noticed, says: "5 s", kinds: exact, ttl: longTTL, play: demoteMaster, through: true, surviving: true, astray: true},
	{name: "demoted in place", bound: replicaLife, says: "4 s", kinds: exact, ttl: longTTL, play: demoteInPlace, through: true, surviving: true, astray: true, polite: true},
	{name: "other database", bound: shortTTL*jitter/100 + time.Second, says: "TTL + 1 s", kinds: exact, ttl: shortTTL, play: missDatabase, database: 1, astray: true},
	{name: "patterns flood", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: floodPatterns, stock: stocked},
	{name: "sweeps", says: "settling sweep", kinds: swept, ttl: longTTL},
	{name: "no worker", bound: shortTTL*jitter/100 + time.Second, says: "TTL + 1 s", kinds: exact, ttl: shortTTL, play: noWorker},
	{name: "holds", on: anywhere, bound: time.Second, says: "1 s", kinds: holds, ttl: longTTL, light: true},
	{name: "map reloaded", on: anywhere, bound: time.Second, says: "1 s", kinds: holds, ttl: longTTL, play: reloadMap},
	{name: "clock set", on: anywhere, bound: time.Second, says: "1 s", kinds: holds, ttl: longTTL, play: setClock, jumps: true, lossy: true},
	{name: "slots moved", on: inCluster, bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: moveSlots, lossy: true},
	{name: "master replaced", on: inCluster, bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: replaceMaster, lossy: true, grace: time.Second},
	{name: "master killed", on: inCluster, bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: killMaster, lossy: true, grace: time.Second},
}

// PhaseNames returns the names of all phases of one Redis with a replica, or of a Cluster.
func PhaseNames(cluster bool) (names []string) {
	for _, p := range phases {
		if p.on == anywhere || (p.on == inCluster) == cluster {
			names = append(names, p.name)
		}
	}
	return names
}
