package demo

import "time"

// A Report is what came of a play. Its JSON form is what "unstale-lab demo --json" prints.
type Report struct {
	OK         bool       `json:"ok"` // every change of the scenario was played, and nothing was unexpected
	MySQL      string     `json:"mysql"`
	Redis      string     `json:"redis"`
	Map        string     `json:"map"`
	MapVersion string     `json:"map_version"`
	Prefix     string     `json:"prefix"`    // of all keys; the names below are without it
	Keys       int        `json:"keys"`      // that the shop caches
	Readers    []Readers  `json:"readers"`   // naive ones, and those of package cache
	Forgotten  *Forgotten `json:"forgotten"` // nil if the demo ended before that
	Tills      []Tills    `json:"tills"`     // with a lock alone, and guarded
	Changes    []Change   `json:"changes"`
	Faults     []string   `json:"faults"` // what was unexpected; empty if OK
	Seconds    float64    `json:"seconds"`
}

// Readers are one kind of readers, and what came of prices that changed while they loaded.
type Readers struct {
	Name     string     `json:"name"`
	Arranged Arranged   `json:"arranged"` // the race that is arranged step by step
	Changes  int        `json:"changes"`  // of the load, and so is what follows
	Reads    uint64     `json:"reads"`
	Loads    uint64     `json:"loads"`
	Old      []OldPrice `json:"old"`     // after every row was settled
	Refused  uint64     `json:"refused"` // loaded and not stored, since the key was unlinked meanwhile
}

// Arranged is the race of one reader: it misses and selects a price; the price is changed, and the worker unlinks the
// key; then the reader goes on.
type Arranged struct {
	Outcome
	ReaderCents int  `json:"reader_cents"` // what that reader got: the old price, since it came before the change
	Refused     bool `json:"refused"`      // what the reader had loaded was not stored
}

// An Outcome is what is left of a price when the worker has nothing left to do.
type Outcome struct {
	Product      int  `json:"product"`
	MySQLCents   int  `json:"mysql_cents"`
	RedisCents   *int `json:"redis_cents"`   // nil if Redis has none
	RedisSeconds int  `json:"redis_seconds"` // that it stays
	NextCents    int  `json:"next_cents"`    // what the next reader got
}

// isStale reports whether an old price stays, and the next reader gets it.
func (o Outcome) isStale() bool {
	return o.RedisCents != nil && *o.RedisCents != o.MySQLCents && o.NextCents != o.MySQLCents
}

// isFresh reports whether none does.
func (o Outcome) isFresh() bool {
	return (o.RedisCents == nil || *o.RedisCents == o.MySQLCents) && o.NextCents == o.MySQLCents
}

// Forgotten is a price that somebody changes in a console without a row in the outbox.
type Forgotten struct {
	Without Outcome `json:"without"` // triggers
	With    Outcome `json:"with"`
}

// Tills are two processes that redeem one coupon under a lock, of which the first is frozen in between, beyond the end of its lock.
type Tills struct {
	Name        string `json:"name"`
	First       string `json:"first"` // what came of it: redeemed, used or refused
	Second      string `json:"second"`
	Redemptions int    `json:"redemptions"` // that MySQL has

	coupon  string
	guarded bool
}

// An OldPrice is one that Redis has and MySQL does not. No worker repairs it.
type OldPrice struct {
	Product      int `json:"product"`
	MySQLCents   int `json:"mysql_cents"`
	RedisCents   int `json:"redis_cents"`
	RedisSeconds int `json:"redis_seconds"` // that it stays
}

// A Change is one transaction and what came of it.
type Change struct {
	Name       string   `json:"name"`
	PlainSQL   bool     `json:"plain_sql"`
	RolledBack bool     `json:"rolled_back"`
	Judged     bool     `json:"judged"` // false if the demo ended before that
	Targets    []Target `json:"targets"`
	Kept       int      `json:"kept"`    // keys that had to stay, and did
	Settled    int      `json:"settled"` // keys that a settling sweep for an earlier change unlinked once more
}

// A Target is a key or pattern that a committed change makes stale, or that a change which was rolled back must not
// touch.
type Target struct {
	Name    string `json:"name"`
	Pattern bool   `json:"pattern"`
	Keys    int    `json:"keys"` // that it covers
	Left    int    `json:"left"` // of them that Redis still had at the end
	// Milliseconds from the return of COMMIT until all keys were seen gone, and until the subscriber heard of it; nil
	// if that did not happen.
	GoneMS  *float64 `json:"gone_ms"`
	HeardMS *float64 `json:"heard_ms"`
	Seq     uint64   `json:"seq"` // of the message, 0 in the array format
}

func milliseconds(d time.Duration) *float64 {
	ms := float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	return &ms
}
