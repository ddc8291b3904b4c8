package demo

import "time"

// A Report describes the outcome of a run. Its JSON form is the output of "unstale-lab demo
// --json".
type Report struct {
	// every change of the scenario was made, and nothing was unexpected
	OK         bool       `json:"ok"`
	MySQL      string     `json:"mysql"`
	Redis      string     `json:"redis"`
	Map        string     `json:"map"`
	MapVersion string     `json:"map_version"`
	Prefix     string     `json:"prefix"`    // of all keys; the names below are without it
	Keys       int        `json:"keys"`      // that the shop caches
	Readers    []Readers  `json:"readers"`   // naive readers, and readers of package cache
	Nines      *Nines     `json:"nines"`     // of their load; nil if the demo ended before that
	Forgotten  *Forgotten `json:"forgotten"` // nil if the demo ended before that
	Tills      []Tills    `json:"tills"`     // with a lock alone, and guarded
	Changes    []Change   `json:"changes"`
	Faults     []string   `json:"faults"` // what was unexpected; empty if OK
	Seconds    float64    `json:"seconds"`
}

// Readers are one kind of readers, with the outcome of prices that changed while they loaded.
type Readers struct {
	Name     string     `json:"name"`
	Arranged Arranged   `json:"arranged"` // the race that is arranged step by step
	Changes  int        `json:"changes"`  // this and the following fields are of the load
	Reads    uint64     `json:"reads"`
	Loads    uint64     `json:"loads"`
	Old      []OldPrice `json:"old"` // after every row was settled
	// loaded but not stored, since the key was unlinked meanwhile
	Refused uint64 `json:"refused"`
}

// Arranged is the race of one reader: the reader misses and selects a price, the price changes, the
// worker unlinks the key, and then the reader continues.
type Arranged struct {
	Outcome
	// the price that the reader got: the old one, since it came before the change
	ReaderCents int  `json:"reader_cents"`
	Refused     bool `json:"refused"` // what the reader had loaded was not stored
}

// An Outcome is the state of a price when the worker has finished.
type Outcome struct {
	Product      int  `json:"product"`
	MySQLCents   int  `json:"mysql_cents"`
	RedisCents   *int `json:"redis_cents"`   // nil if Redis has none
	RedisSeconds int  `json:"redis_seconds"` // that it stays
	NextCents    int  `json:"next_cents"`    // what the next reader got
}

// isStale reports whether Redis keeps an old price for the next reader.
func (o Outcome) isStale() bool {
	return o.RedisCents != nil && *o.RedisCents != o.MySQLCents && o.NextCents != o.MySQLCents
}

// isFresh reports whether Redis keeps no old price.
func (o Outcome) isFresh() bool {
	return (o.RedisCents == nil || *o.RedisCents == o.MySQLCents) && o.NextCents == o.MySQLCents
}

// Forgotten is a price that an operator changes in a console without an outbox row.
type Forgotten struct {
	Without Outcome `json:"without"` // triggers
	With    Outcome `json:"with"`
}

// Tills are two processes that redeem one coupon under a lock. The first is frozen between its
// SELECT and its INSERT, until after its lock has expired.
type Tills struct {
	Name        string `json:"name"`
	First       string `json:"first"` // what came of it: redeemed, used or refused
	Second      string `json:"second"`
	Redemptions int    `json:"redemptions"` // that MySQL has

	coupon  string
	guarded bool
}

// An OldPrice is a price that Redis has and MySQL does not. No worker repairs it.
type OldPrice struct {
	Product      int `json:"product"`
	MySQLCents   int `json:"mysql_cents"`
	RedisCents   int `json:"redis_cents"`
	RedisSeconds int `json:"redis_seconds"` // that it stays
}

// A Change is one transaction and its outcome.
type Change struct {
	Name       string   `json:"name"`
	PlainSQL   bool     `json:"plain_sql"`
	RolledBack bool     `json:"rolled_back"`
	Judged     bool     `json:"judged"` // false if the demo ended before that
	Targets    []Target `json:"targets"`
	Kept       int      `json:"kept"` // keys that had to stay, and did
	// keys that the second sweep for an earlier change unlinked again
	Settled int `json:"settled"`
}

// A Target is a key or pattern that a committed change makes stale, or that a change that rolled
// back must not touch.
type Target struct {
	Name    string `json:"name"`
	Pattern bool   `json:"pattern"`
	Keys    int    `json:"keys"` // that it covers
	Left    int    `json:"left"` // of them that Redis still had at the end
	// Milliseconds from the return of COMMIT until all keys were seen gone, and until the
	// subscriber received the message; nil if that did not happen.
	GoneMS  *float64 `json:"gone_ms"`
	HeardMS *float64 `json:"heard_ms"`
	Seq     uint64   `json:"seq"` // of the message, 0 in the array format
}

func milliseconds(d time.Duration) *float64 {
	ms := float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	return &ms
}
