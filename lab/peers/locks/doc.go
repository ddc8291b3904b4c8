// Package locks measures package lock and other Go libraries that lock in Redis or ZooKeeper, on
// real servers: an uncontended lock, one with a hundred waiters, and one that fifty take in turns.
package locks
