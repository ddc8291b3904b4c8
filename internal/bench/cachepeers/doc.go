// Command cachepeers puts package cache and other libraries for Go that cache in Redis through the same races between a
// reader and a write, on real servers. It is a module of its own, so that nothing else depends on them.
//
// Exit codes: 0 done, 1 failed, or an old value was read through package cache, 2 wrong usage.
package main
