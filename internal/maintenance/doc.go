// Package maintenance has the services of a worker beside its batches:
//
//   - A [Healer] finds unlinks that Redis acknowledged and then lost, and repeats them. To find them,
//     it compares the journal with the beacons.
//   - A [HeartbeatSender] shows readers once per second that messages arrive, and how far the
//     invalidation lags.
//   - A [Sweeper] carries out the sweeps that batches request: it scans the keyspace for patterns and
//     clears index sets. It does so outside of claims, in one worker at a time.
//   - A [SpotChecker] checks whether entries survived their invalidation.
//   - A [ShadowChecker] confirms or rejects the reports of shadow reads.
//   - [State] classifies errors of MySQL and Redis, [Pause] returns the wait before another attempt,
//     and a [BatchSize] bounds how much one batch takes.
//
// # Spot checks
//
// A SpotChecker takes a sample of the keys of settled batches, and looks at them 1 s, 10 s and 60 s
// later. It compares the lease time of the entry with the clock of its master before the UNLINK.
//
// Guarantees:
//
//  1. An entry counts as stale only if it has an earlier lease time, Redis still has the batch, and
//     neither the master of the key nor the clock of any master has changed since. Everything that
//     is not clearly later is unknown.
//  2. Offer never waits for a server.
//  3. Only an entry that is still the same is unlinked.
//
// Limits: an entry that is not stale proves that no earlier lease survived, not that its value is
// right. A loader on a replica, a wrong key in the map and a forgotten row all pass.
//
// # Shadow reads
//
// A reader reports an entry that differs from its loader, and has ruled out gaps in the messages and
// invalidations that it has received: see cache.Shadow. Only a worker can rule out the rest: rows
// that wait, are delayed or dead, and sweeps.
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
package maintenance
