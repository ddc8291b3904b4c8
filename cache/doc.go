// Package cache is the read side: cache-aside over Redis, and over this process' memory, whose readers cannot put an old
// value back.
//
// A worker unlinks the keys of what changed, after the commit (see the README). A reader that loaded the old row before
// the commit would store it after that, and the old value would stay for a whole TTL. [Fetch] stores only under a lease
// that the worker unlinks together with the key.
//
//	products, err := cache.New(cache.Config{Redis: client, Prefix: "zahraah:prod:"})
//	...
//	p, err := cache.Fetch(ctx, products, "product:42", func(ctx context.Context) (Product, error) {
//		return loadProduct(ctx, db, 42) // reads the primary, outside an older snapshot
//	}, cache.Moderate)
//
// What it promises:
//
//  1. What was loaded before an invalidation is not stored after it, in Redis or in memory.
//  2. A load that began before an invalidation never answers a caller that came after it, also while Redis is away.
//  3. What was invalidated is never served again, also not as a stale value while a loader fails.
//  4. One load of a key runs at a time, in all processes, as long as its lease lives.
//  5. A caller whose policy has the Checker of its own writes gets nothing older than these (Policy.After).
//  6. A Redis that is away or slow costs a caller a bounded time, and no error.
//
// The loader must read the primary and must not read an older snapshot (a REPEATABLE READ transaction that began
// earlier): otherwise use hold in the map.
//
// What it does not do: it invalidates nothing in other processes' memory except through the worker, and it caches no key
// whose braces leave it without a lease (see protocol.LeaseKey): those are loaded each time.
package cache
