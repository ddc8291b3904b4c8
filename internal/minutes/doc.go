// Package minutes counts invalidations in cache_outbox_minutes: how many there were, how many were
// in time, and what checks of the cache found. The figures are by minute, and survive restarts.
//
// A batch is counted in the transaction that settles it, so exactly once. Spot checks and shadow
// reads end later: their results of a minute are written as totals, so writing them again is
// harmless. Each worker writes separate rows. Rows that are older than 25 hours are folded into one
// per hour, and are deleted after 30 days.
package minutes
