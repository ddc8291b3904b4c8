// Package keyspace applies what is stale to Redis: it unlinks keys together with their leases, publishes what is gone,
// sweeps patterns and takes index sets apart. It speaks to one Redis, to Redis behind Sentinel and to Redis Cluster.
//
// What it guarantees:
//
//  1. A key and its lease are one unit. Both are named by one UNLINK, the lease first, and no command ends between
//     them. So a reader that took the lease before the key went away cannot store what it loaded.
//  2. Every reply is checked. A call that returns no error and no failure has had an answer from Redis for every name
//     that it was given.
//  3. An error is an outage: an *Outage, the fault of Redis, of the network, of the configuration or of the caller's
//     context; or a *Loss. Nothing is then known to be done, everything may be, and repeating the call is harmless.
//  4. What Redis refuses for the sake of one key is that key's fault: a *Refusal, by target or by pattern. Its
//     neighbours are done all the same.
//  5. Names are bytes. Nothing is trimmed, quoted or normalised, and in Cluster a slot is computed from the bytes that
//     are sent.
//  6. No command crosses slots, and no scan reads a replica.
//  7. With beacons, an UNLINK that Redis acknowledged and has lost is noticed: by the next call as a *Loss, and by any
//     process through Survived.
//
// What it does not do: it does not decide what is stale, does not remember what it did, does not wait out an outage,
// and publishes nothing by itself after an unlink or a sweep: the order is the caller's.
//
// The Redis user needs UNLINK and PUBLISH (or SPUBLISH); GET and SET for beacons, TIME if births are to be known, WAIT if
// asked for; TIME, HSET, HDEL, HGETALL and PEXPIRE for a Board; SET and PEXPIRE for holds; SCAN for sweeps, and DBSIZE if their progress is to be told; SCARD, RENAMENX,
// SSCAN and SREM for index sets; SUBSCRIBE to listen; PING; in Cluster CLUSTER SLOTS and CLUSTER NODES; on a numbered
// database SELECT. None of these is @admin or @dangerous. Its key patterns have to cover the keys, their leases
// (lock:fill:*) and tombstones (lock:hold:*), unstale:set:*, unstale:beacon:*, unstale:alive*, unstale:workers and
// unstale:sources.
package keyspace
