// Package caches puts package cache and other libraries for Go that cache in Redis through the same
// races between a reader and a write, on real servers.
package caches
