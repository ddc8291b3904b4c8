// Package staleentries keeps the stale entries that spot checks found. The package knows MySQL and
// nothing of Redis.
package staleentries
