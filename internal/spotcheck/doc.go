// Package spotcheck checks whether entries survived their invalidation. It takes a sample of the
// keys of settled batches, and looks at them 1 s, 10 s and 60 s later. It compares the lease time
// of the entry with the clock of its master before the UNLINK.
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
package spotcheck
