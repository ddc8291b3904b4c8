// Package protocol has the definitions that the worker and the readers of every language share: the
// names of the lease of a key and of the version of a tag, the message about invalidated keys, the
// globs in it, and the slots of Redis Cluster. docs/protocol.md describes the same without Go.
//
// It depends only on the standard library, uses no network and keeps no state. Everything in it is
// safe for concurrent use.
package protocol
