// Package zk keeps the locks of package lock in ZooKeeper. It is a separate module: applications
// that keep locks in Redis do not download the ZooKeeper client.
//
//	locks, err := lock.New(lock.Config{Backend: zk.Backend{Servers: []string{"zk1.internal:2181"}}, MySQL: dsn})
//
// See package lock for the guarantees and limits, and docs/locks.md for details.
package zk
