// Package lock provides a distributed lock whose loss cannot corrupt the rows that it guards.
//
// A lock in Redis, in several Redis servers ([Redlock]), or in ZooKeeper has a lease. The lease
// expires, so a holder that crashes does not keep the lock indefinitely. It also expires under a
// holder that is only frozen or cut off, and such a holder continues to write when it comes back.
// So a lease alone does not give mutual exclusion. The changes of a critical section to MySQL are
// safe in [Held.InTx]:
//
//	locks, err := lock.New(lock.Config{Backend: lock.Redis{Client: client}, MySQL: dsn})
//	...
//	err = locks.Do(ctx, "coupon:SUMMER", func(ctx context.Context, held *lock.Held) error {
//		return held.InTx(ctx, db, func(tx *sql.Tx) error {
//			// read inside what the write is computed from, then write
//		})
//	})
//
// Guarantees:
//
//  1. Sections in InTx of one name never interleave, regardless of faults of the backend, the
//     network and clocks. A section begins after its fencing token was written to MySQL, keeps
//     the row of the token locked until it commits, and is refused if the token belongs to
//     another holder. The next holder waits for that row lock.
//  2. While the process runs, the context of a holder ends before another holder can get the
//     lock, unless the backend loses the lock early: Redis by a failover, a restart, a deleted
//     key, an eviction or a clock that is set forward, ZooKeeper by a deleted node. With Redlock,
//     a majority of the instances must have lost or never had the lock.
//  3. A lost lock is not silently retaken: extending and releasing compare the token first.
//  4. A request for the lock that arrives after the deadline of its caller, or after Timeout,
//     locks nothing in Redis, and is released in ZooKeeper. The client sends each token once. A
//     request without a reply is released when Timeout ends at the latest. This guarantee needs a
//     clock of Redis that is not set meanwhile, and does not hold behind a proxy that repeats
//     requests.
//  5. An error names the holder of the lock, and since when it holds it.
//
// Limits: without MySQL in its Config it guards nothing, and two holders may run at a time. A clock
// of Redis that is set back can keep a lock for as long as the jump. In Redis there is no fairness
// between processes. There is no reentrance, and there are no shared locks. See docs/locks.md.
package lock
