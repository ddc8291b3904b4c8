package conform

// DriverVersion is the version of the lines between the judge and a client: see README.md.
const DriverVersion = 1

// A Line is one line of JSON between the judge and a client. The type decides which fields count:
// README.md has the list. Absent fields are zero.
type Line struct {
	Type string `json:"type"`
	ID   int    `json:"id,omitempty"` // of a fetch, a load or a question

	// hello
	Version int    `json:"version,omitempty"` // DriverVersion; in ready too
	Redis   string `json:"redis,omitempty"`   // the URL to connect to
	Prefix  string `json:"prefix,omitempty"`  // of all keys; it is part of the keys in all lines
	Channel string `json:"channel,omitempty"` // of messages
	Source  string `json:"source,omitempty"`  // the outbox whose workers send heartbeats
	Period  int64  `json:"period,omitempty"`  // of heartbeats, in milliseconds
	Lease   int64  `json:"lease,omitempty"`   // the TTL of a lease, in milliseconds
	TTL     int64  `json:"ttl,omitempty"`     // of a value, in milliseconds, without stale times; in fetch too
	Timeout int64  `json:"timeout,omitempty"` // of a command, in milliseconds
	Cluster bool   `json:"cluster,omitempty"` // redis is a node of a Redis Cluster; in ready: the client takes one

	// ready
	Name string `json:"name,omitempty"` // of the client, for the report
	L1   bool   `json:"l1,omitempty"`   // it has an in-process cache, which is open
	Many bool   `json:"many,omitempty"` // it takes fetchMany

	// in the staleness checker
	MySQL  string `json:"mysql,omitempty"`  // in hello: the URL of the outbox, for write tokens
	Tokens bool   `json:"tokens,omitempty"` // in ready: it takes tokens
	Token  string `json:"token,omitempty"`  // in fetch: of a write that the read must see
	Stale  int64  `json:"stale,omitempty"`  // in fetch: for how long an expired value may be returned, in milliseconds
	From   string `json:"from,omitempty"`   // in result: where the value came from: memory, redis, stale or load

	Keys   []string          `json:"keys,omitempty"`
	Tags   []string          `json:"tags,omitempty"`
	Values map[string]string `json:"values,omitempty"` // by key; without those that do not exist
	Error  string            `json:"error,omitempty"`

	// stats
	Evicted   int64  `json:"evicted,omitempty"`
	Open      bool   `json:"open,omitempty"`
	Refused   uint64 `json:"refused,omitempty"`   // fills, since ready
	Unsettled uint64 `json:"unsettled,omitempty"` // reads whose write was not known to be settled, likewise
}

// The types of lines.
const (
	LineHello  = "hello"
	LineReady  = "ready"
	LineFetch  = "fetch"
	LineMany   = "fetchMany"
	LineLoad   = "load"
	LineLoaded = "loaded"
	LineResult = "result"
	LineStats  = "stats"
	LineClose  = "close"
)
