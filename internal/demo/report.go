package demo

import "time"

// A Report is what came of a play. Its JSON form is what "unstale-lab demo --json" prints.
type Report struct {
	OK         bool     `json:"ok"` // every change of the scenario was played, and nothing was unexpected
	MySQL      string   `json:"mysql"`
	Redis      string   `json:"redis"`
	Map        string   `json:"map"`
	MapVersion string   `json:"map_version"`
	Prefix     string   `json:"prefix"` // of all keys; the names below are without it
	Keys       int      `json:"keys"`   // that the shop caches
	Changes    []Change `json:"changes"`
	Faults     []string `json:"faults"` // what was unexpected; empty if OK
	Seconds    float64  `json:"seconds"`
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
