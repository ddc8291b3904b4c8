// Package locks measures package lock and other Go libraries that lock in Redis or ZooKeeper, on
// real servers: an uncontended lock, and one with a hundred waiters.
package locks
