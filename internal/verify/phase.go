package verify

import (
	"context"
	"time"
)

const (
	longTTL      = 5 * time.Minute
	shortTTL     = 3 * time.Second // where no worker runs
	jitter       = 115             // per cent of its TTL that a value lives at most
	calmTurns    = 12              // how many times longer a calm turn is
	healPatience = time.Minute
	deafness     = 4 * time.Second // until a memory closes that hears nothing
	noticed      = 5 * time.Second // until readers leave a server that workers have left
)

// A phase is what is broken while keys are written and read, and the bound that holds meanwhile.
type phase struct {
	name  string
	bound time.Duration // from the commit; 0: the end of the sweeps that the commit asked for
	says  string        // the bound, as the design has it
	kinds []kind
	ttl   time.Duration
	// play breaks something, holds it broken and repairs it. Nil: nothing breaks.
	play func(ctx context.Context, t *turn) error
	// through says that readers and workers reach Redis over a link, so that it can be another one.
	through bool
	// surviving says that readers keep their connections after a failover: only new ones lead to the new master.
	surviving bool
	// database is the number of the Redis database of readers. Workers use 0.
	database int
	// astray says that readers may ask another server or database than the workers use. No token proves anything there.
	astray bool
	// lossy says that Redis loses leases, so that a refused fill proves no race.
	lossy bool
	// parted says that readers subscribe over the link that is disturbed.
	parted bool
	// frozen says that readers are stopped: that pause excuses nothing.
	frozen bool
	grace  time.Duration // after a window, in which nothing counts
	times  int           // how many times longer a turn is
	stock  int           // values in the memory of each reader, in addition to the keys
	light  bool          // a quarter of the reads and writes: what staleness is where the machine is not the limit
}

var (
	exact = []kind{item, item, tagged}
	swept = []kind{list, member}
)

// phases are all of them, in the order of a round.
var phases = []phase{
	{name: "light load", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, light: true},
	{name: "calm", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, times: calmTurns},
	{name: "worker killed", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: killWorker},
	{name: "worker frozen", bound: claimTimeout + time.Second, says: "claim timeout + 1 s", kinds: exact, ttl: longTTL, play: freezeWorker},
	{name: "redis empty", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: emptyRedis, lossy: true},
	{name: "old snapshot", bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: oldRedis, lossy: true, grace: time.Second},
	{name: "failover", bound: time.Second, says: "1 s; healing + 1 s", kinds: exact, ttl: longTTL, play: failOver, through: true, lossy: true, grace: time.Second},
	{name: "subscriber cut", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: cutSubscriber, parted: true},
	{name: "subscriber frozen", bound: deafness, says: "4 s", kinds: exact, ttl: longTTL, play: freezeSubscriber, parted: true},
	{name: "reader frozen", bound: deafness, says: "4 s; thaw + 0.1 s", kinds: exact, ttl: longTTL, play: freezeReader, frozen: true, grace: 100 * time.Millisecond},
	{name: "master demoted", bound: noticed, says: "5 s", kinds: exact, ttl: longTTL, play: demoteMaster, through: true, surviving: true, astray: true},
	{name: "other database", bound: shortTTL*jitter/100 + time.Second, says: "TTL + 1 s", kinds: exact, ttl: shortTTL, play: missDatabase, database: 1, astray: true},
	{name: "patterns flood", bound: time.Second, says: "1 s", kinds: exact, ttl: longTTL, play: floodPatterns, stock: stocked},
	{name: "sweeps", says: "settling sweep", kinds: swept, ttl: longTTL},
	{name: "no worker", bound: shortTTL*jitter/100 + time.Second, says: "TTL + 1 s", kinds: exact, ttl: shortTTL, play: noWorker},
}

// PhaseNames are the names of all phases.
func PhaseNames() (names []string) {
	for _, p := range phases {
		names = append(names, p.name)
	}
	return names
}
