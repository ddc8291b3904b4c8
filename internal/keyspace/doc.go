// Package keyspace applies invalidations to Redis: it unlinks keys together with their leases,
// publishes them, sweeps patterns and clears index sets. It supports a single Redis, Redis behind
// Sentinel and Redis Cluster.
//
// Guarantees:
//
//  1. A key and its lease are one unit. One UNLINK names both, the lease first, and no command
//     ends between them. So a reader that took the lease before the key was deleted cannot store
//     its value.
//  2. Every reply is checked. A call that returns no error and no failure has had an answer from
//     Redis for every name.
//  3. An error is an outage: an *Outage of Redis, of the network, of the configuration or of the
//     caller's context; or a *Loss. The call may then be done in part, and repeating it is
//     harmless.
//  4. If Redis refuses a command because of one key, that is a *Refusal of the target or the
//     pattern. The others are done.
//  5. Names are bytes. Nothing is trimmed, quoted or normalized, and in a Cluster the slot is
//     computed from the bytes that are sent.
//  6. No command crosses slots, and no scan reads a replica.
//  7. With beacons, the loss of an acknowledged UNLINK is detected: by the next call as a *Loss,
//     and by any process through Survived.
//
// Limits: the package does not decide what is stale, keeps no record of its work, and does not wait
// out an outage. It does not publish after an unlink or a sweep on its own: the caller sets the
// order.
//
// The Redis user needs these commands, none of which is @admin or @dangerous:
//
//   - UNLINK and PUBLISH (or SPUBLISH)
//   - GET and SET for beacons, TIME for unlink times, WAIT if configured
//   - TIME, HSET, HDEL, HGETALL and PEXPIRE for StatusHashes
//   - SET and PEXPIRE for tombstones
//   - SCAN for sweeps, and DBSIZE for their progress
//   - SCARD, RENAMENX, SSCAN and SREM for index sets
//   - SUBSCRIBE to listen
//   - PING
//   - CLUSTER SLOTS and CLUSTER NODES in a Cluster
//   - SELECT on a numbered database
//
// Its key patterns must cover the keys, their leases (lock:fill:*) and tombstones (lock:hold:*),
// unstale:set:*, unstale:beacon:*, unstale:alive*, unstale:workers and unstale:sources.
package keyspace
