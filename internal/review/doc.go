// Package review makes of a walk over a cache's keys what a quarterly review asks for: keys without a time to live, values that
// are too large, names that nobody can read, what is biggest and most used, what no entity of the map reaches, and caches
// that are used as a database.
//
// It keeps families and not keys, so that its memory does not grow with the cache.
package review
