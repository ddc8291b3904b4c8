// Package cache implements cache-aside over Redis, and over an in-process cache (L1), such that no
// reader can store an invalidated value.
//
// A worker unlinks the keys of changed rows after the commit (see the README). A reader that loaded
// the old row before the commit could store it after the UNLINK, and the old value would stay until
// its TTL ends. [Fetch] stores a value only under a lease (as in "Scaling Memcache at Facebook",
// NSDI 2013). The worker unlinks the lease together with the key.
//
//	products, err := cache.New(cache.Config{Redis: client, Prefix: "zahraah:prod:"})
//	...
//	p, err := cache.Fetch(ctx, products, "product:42", func(ctx context.Context) (Product, error) {
//		return loadProduct(ctx, db, 42) // reads the primary, outside an older snapshot
//	}, cache.Moderate)
//
// Guarantees:
//
//  1. A value that was loaded before an invalidation is not stored after it, in Redis or in L1.
//  2. A load that began before an invalidation never answers a caller that came after it, even
//     while Redis is unavailable.
//  3. An invalidated value is never served again, not even as a stale value while a loader fails.
//     A connection to a server that workers have left, for example the old master after a
//     switch-over, is used for at most 5 s; see docs/cache.md.
//  4. One load of a key runs at a time, in all processes, as long as its lease lives and loads
//     store their values. If loads store nothing, since they fail or call Fill.Skip, a caller
//     loads without the lease after four other holders have had it.
//  5. A caller whose policy has the Checker of its own writes reads its own writes
//     (Policy.After).
//  6. An unavailable or slow Redis costs a caller a bounded time, and no error.
//
// The loader must read the primary and must not read an older snapshot (a REPEATABLE READ
// transaction that began earlier). If it cannot, set hold in the map.
//
// Limits: the package invalidates L1 of other processes only through the worker, and it does not
// cache a key whose braces leave it without a lease (see protocol.LeaseKey). Such a key is loaded
// each time.
package cache
