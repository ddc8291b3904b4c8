package protocol

import (
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
		return "unstale:alive"
	}
	return "unstale:alive{" + tag + "}"
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

var errNoTime = errors.New(`the field "t" is missing`)
