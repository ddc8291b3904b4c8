package protocol

import _ "embed" // for the scripts

// The scripts of the read side, as Redis runs them (EVAL, EVALSHA). Each documents its KEYS, ARGV
// and reply. All KEYS of one call are in one slot. Every script may be sent twice, even much later:
// a late copy stores no value that was unlinked meanwhile.
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
