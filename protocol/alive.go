package protocol

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// AliveLife bounds the age of an [Alive]: no worker of its source writes there if it is older.
const AliveLife = 3 * 1_000_000 // microseconds

// AliveKey returns the name of a hash. Workers write it once per second, for readers to detect
// which server and database they use. It has a field for each source, and each value is an [Alive].
// Tag is empty for one server and for Sentinel. In a Cluster each master has its own hash, and its
// tag is the least number from 0, in decimal, whose slot the master has.
func AliveKey(tag string) string {
	if tag == "" {
		return AlivePrefix
	}
	return AlivePrefix + "{" + tag + "}"
}

// An Alive tells readers which server and database the workers of a source write to, and the
// longest lease of their map. Workers write it even while MySQL is unavailable or an operator has
// paused them.
type Alive struct {
	// Time is when it was written, by the clock of the server that holds it: microseconds since
	// 1970.
	Time int64 `json:"t"`
	// Epoch is the epoch of the messages of the worker that wrote it. Empty: it has published none.
	Epoch string `json:"epoch,omitempty"`
	// Lease is the longest lease that a reader may hold, in milliseconds.
	Lease int64 `json:"lease"`
	// LeaseTime is when another worker of the source, whose map has this shorter lease, wrote it.
	// Zero: the lease is of the worker's own map.
	LeaseTime int64 `json:"lease_t,omitempty"`
	// Map is the version of the map of the worker that wrote it.
	Map string `json:"map"`
}

// String returns the JSON of a.
func (a Alive) String() string {
	text, _ := json.Marshal(a) // text and numbers: it cannot fail
	return string(text)
}

// ParseAlive reads a value of the hash. It ignores unknown fields.
func ParseAlive(text string) (Alive, error) {
	var a Alive
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Alive{}, fmt.Errorf("read %s: %w", AliveKey(""), err)
	}
	if a.Time <= 0 {
		return Alive{}, fmt.Errorf("read %s: %w", AliveKey(""), errNoTime)
	}
	return a, nil
}

// WithShorterLease returns a with the lease of before, the value that a replaces, if that lease is
// shorter and a worker wrote it as its own within the last AliveLife. Workers of one source whose
// maps differ then agree on the shortest lease.
func (a Alive) WithShorterLease(before Alive) Alive {
	written := cmp.Or(before.LeaseTime, before.Time)
	if before.Lease > 0 && before.Lease < a.Lease && written <= a.Time && a.Time-written < AliveLife {
		a.Lease, a.LeaseTime = before.Lease, written
	}
	return a
}

var errNoTime = errors.New(`the field "t" is missing`)
