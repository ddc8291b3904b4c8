// Package shadow confirms or rejects the reports of shadow reads: see cache.Shadow. A reader
// reports an entry that differs from its loader, and has ruled out gaps in the messages and
// invalidations that it has received. Only a worker can rule out the rest: rows that wait, are
// delayed or dead, and sweeps.
//
// A difference is confirmed if all of these hold, in this order:
//
//  1. Everything that was committed before the report is invalidated, by the worker's proof.
//  2. No row that failed or is due is delayed, no row died since the entry's lease, and no sweep
//     that waits can reach the key or its tags.
//  3. The entry in Redis is still the same.
//  4. The map has no hold for the key that is longer than its lease: such a hold permits loaders
//     that read replicas.
//  5. Redis has not lost writes.
//
// Everything else is unknown. A confirmed difference is logged and stored. The entry stays: a
// worker cannot load the value, and the entry may be right. A loader that depends on the time or on
// a replica also differs.
package shadow
