package protocol

// Names in Redis that workers, readers, locks and limits have to agree on.
const (
	// DefaultChannel is the channel of invalidation messages if the map names none.
	DefaultChannel = "cache:invalidate"
	// DefaultWakeChannel is the channel that wakes workers if no setting names another.
	DefaultWakeChannel = "cache:outbox:wake"
	// Prefix begins the names of all keys that workers keep for themselves.
	Prefix = "unstale:"
	// BeaconPrefix begins the names of beacons: write markers that reveal lost writes.
	BeaconPrefix = Prefix + "beacon:"
	// SetPrefix begins the private names that index sets have while a worker clears them.
	SetPrefix = Prefix + "set:"
	// AlivePrefix begins the names of the keys that show when a worker last wrote to a server.
	AlivePrefix = Prefix + "alive"
)

// MaxID is the length limit of an ID in the outbox, in characters.
const MaxID = 255
