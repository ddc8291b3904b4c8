// Package lock is a distributed lock whose loss cannot corrupt the rows that it guards.
//
// A lock in Redis, in several of them by [Redlock], or in ZooKeeper has a lease: it ends by itself, so that a holder which dies
// does not keep it for ever. So it also ends under a holder that is merely frozen, or cut off, and such a holder goes on writing when
// it comes back. A lease alone is no mutex. What a section changes in MySQL is safe in [Held.InTx]:
//
//	locks, err := lock.New(lock.Config{Backend: lock.Redis{Client: client}, MySQL: dsn})
//	...
//	err = locks.Do(ctx, "coupon:SUMMER", func(ctx context.Context, held *lock.Held) error {
//		return held.InTx(ctx, db, func(tx *sql.Tx) error {
//			// read inside what the write is computed from, then write
//		})
//	})
//
// What it promises:
//
//  1. Sections in InTx of one name never interleave, whatever happens to the backend, to the network and to clocks: a section
//     begins after its token was written to MySQL, has the row of the token locked until it commits, and is refused if the
//     token is another's. The next token waits for that row.
//  2. While the process runs, the context of a holder ends before another holder can have the lock, unless the backend loses
//     it early: Redis by a failover, a restart, a deleted key, an eviction or a clock that is set forward, ZooKeeper by a
//     deleted node. With Redlock that has to happen to so many instances that these, and those that never had the lock, are a majority.
//  3. A lock that is lost is not taken back in silence: extending and releasing compare the token first.
//  4. A request for the lock that arrives after its caller's deadline, or after Timeout, locks nothing in Redis, and what it
//     locks in ZooKeeper is given back. The client sends each token once. A request without an answer is given back when Timeout
//     is over at the latest, so it holds the lock no longer. This promise needs a clock of Redis that is not set in between,
//     and does not hold behind a proxy that repeats requests.
//  5. An error tells who holds the lock, and since when.
//
// What it does not do: without MySQL in its Config it guards nothing, and two holders may run at a time. A clock of Redis
// that is set back can hold a lock for as long as the jump. It has no fairness between processes in Redis, no reentrance and no
// shared locks. docs/locks.md has more.
package lock
