// Package protocol is what the worker and the readers of every language must agree on: the names of a key's lease and
// of a tag's stamp, the message that tells of keys which are gone, the globs that it may carry, and the slots of Redis
// Cluster. The page docs/protocol.md says the same without Go.
//
// It depends on the standard library alone, touches no network and keeps no state. Everything in it is safe for
// concurrent use.
package protocol
