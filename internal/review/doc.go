// Package review reports on a walk over a cache's keys, for a quarterly review:
//
//   - keys without a time to live
//   - values that are too large
//   - names that are unreadable
//   - the largest and most used families
//   - keys that no entity of the map reaches
//   - caches that are used as a database
//
// It stores families, not keys, so its memory does not grow with the cache.
package review
