package protocol

// A Beat is a heartbeat: it proves that the messages of a worker arrive, and says how far behind
// the outbox is. A worker sends one per second, only if the previous second had a successful poll,
// no pause and no healing.
type Beat struct {
	// Source is the id of the outbox.
	Source string `json:"source"`
	// Lease is the longest lease that a reader may hold, in milliseconds.
	Lease int64 `json:"lease,omitempty"`
	// First and Last mark the first and the final message of an epoch.
	First bool `json:"first,omitempty"`
	Last  bool `json:"last,omitempty"`
	// After is the epoch that a first message follows, of the same worker, and AfterSeq the number
	// of its last message.
	After    string `json:"after,omitempty"`
	AfterSeq uint64 `json:"after_seq,omitempty"`
	// Moved is the channel of the worker's map, if the message is sent on another channel.
	Moved string `json:"moved,omitempty"`
	// Withheld is why the worker sends no heartbeat on the channel now. The message has First too,
	// so that older readers do not take it for a heartbeat.
	Withheld string `json:"withheld,omitempty"`
	// Behind is the age of the latest time before which everything committed is known to be
	// invalidated, in milliseconds, at least 1. Rows that failed and wait, and dead letters, do not
	// count. Zero: unknown, as in heartbeats of older workers and in First and Last.
	Behind int64 `json:"behind,omitempty"`
	// Alive is true if the latest write of [AliveKey] by this worker succeeded, so readers of the
	// same database find its source there. Older workers, and those without the permission, never
	// set it.
	Alive bool `json:"alive,omitempty"`
}
