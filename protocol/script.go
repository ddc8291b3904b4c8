package protocol

import _ "embed" // for the scripts

// The scripts of the read side, as Redis runs them (EVAL, EVALSHA). Each says what its KEYS and ARGV are and what it
// answers; all KEYS of one call lie in one slot. Every one may be sent twice, also much later: a late copy stores nothing
// that was unlinked in between.
var (
	//go:embed scripts/lease.lua
	LeaseScript string
	//go:embed scripts/fill.lua
	FillScript string
	//go:embed scripts/release.lua
	ReleaseScript string
	//go:embed scripts/stamp.lua
	StampScript string
	//go:embed scripts/expire.lua
	ExpireScript string
)
