// Package demo shows on real servers that naive readers leave stale values in Redis and readers of
// package cache do not. It then runs a scenario: a small shop in MySQL, its cache in Redis, the
// real worker with the shipped map, a subscriber, and transactions with known stale keys.
//
// Guarantees:
//
//  1. The demo runs on private servers, or on given servers. There it creates its own database
//     and uses keys under its own environment name, touches nothing else, and removes both at the
//     end.
//  2. The demo verifies the results itself. After each change it asks Redis for every key of the
//     shop: stale keys must be gone, and all other keys must still exist. It compares the
//     messages that the subscriber received with the expected ones. At the end it compares every
//     cached value with MySQL.
//  3. The demo waits for signals. A change is complete when its row has left the outbox tables,
//     and all messages have arrived when a message that is sent after them arrives on the same
//     subscription.
//  4. A transaction that rolled back is checked only after a later one is complete. "Nothing
//     happened" then does not mean "nothing happened yet".
//  5. The readers' race has two parts. The first is arranged step by step and is the same each
//     time. The second is a load with the same seeds for both kinds of readers, and its figures
//     vary. Cached values are compared with MySQL when every row is settled. Naive readers must
//     leave an old price in the first part, and readers of package cache must leave none in
//     either part. The worker's figures must count every change of both parts, and no stale entry.
//  6. Two tills redeem a coupon, each in its own process. The first is frozen after it has
//     reported its read, and continues when the second has reported its outcome. The outcome is
//     therefore the same each time: redeemed twice with a lock alone, once if guarded.
//  7. Close leaves no process, directory, database or key behind.
package demo
