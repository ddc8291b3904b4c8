// Command lockpeers measures package lock and other libraries for Go that lock in Redis or ZooKeeper: a lock that nobody else
// wants, and one for which a hundred wait, on real servers. It is a module of its own, so that nothing else depends on them.
//
// Exit codes: 0 measured, 1 failed, 2 wrong usage.
package main
