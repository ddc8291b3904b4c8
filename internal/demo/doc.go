// Package demo shows on real servers what naive readers leave in Redis and what those of package cache do not, and then
// plays the main job: a small shop in MySQL, its cache in Redis, the real worker with the shipped map, a subscriber, and
// transactions of which it knows beforehand what they make stale.
//
// What it promises:
//
//  1. It works on private servers of its own, or on servers that were named to it. There it has a database of its own
//     and keys under an environment name of its own, touches nothing else, and removes both at the end.
//  2. It looks for itself. After each change it asks Redis for every key of the shop: what had to go is gone,
//     everything else is still there. It compares what the subscriber heard with what had to be said, neither less nor
//     more. At the end every cached value is compared with MySQL.
//  3. It waits for signals: a change is through when its row has left the outbox's tables, and everything was heard
//     that was going to be once a message that is sent after that arrives on the same subscription.
//  4. A transaction that rolled back is judged after a later one was seen through, so that "nothing happened" does not
//     mean "nothing happened yet".
//  5. The race of readers is one that is arranged step by step, which is the same each time, and a load of the same
//     seeds for both kinds of readers, whose figures vary. What readers left is compared with MySQL when every row is
//     settled. Naive readers must leave an old price in the first one, and those of package cache none in either.
//  6. Two tills redeem a coupon, each a process of its own. The first is frozen when it has said that it has read, and goes on when
//     the second has said what came of it, so that the outcome is the same each time: twice with a lock alone, once guarded.
//  7. Close leaves nothing: no process, no folder, no database, no key.
package demo
