// Package verify is the meter of the read side: it checks every read against what was committed, while things break.
//
// Writers raise the version of a row of MySQL and insert the row of the outbox, in one transaction. The version of a key
// only goes up, and one writer owns it. When COMMIT has returned, the writer notes the version with the time in a table that
// all processes have mapped into their memory. Readers in processes of their own read through package cache, and look into
// the table after the read is over, so that no read depends on it.
//
// How a read is judged:
//
//   - Let a read begin at t and return version v. It is stale by t - committed(w) for every w > v whose COMMIT had
//     returned by t. The staleness of an invalidation w is the largest of these, over all readers. Since the noted time is
//     that of the answer, it is measured too short by that answer's time at most.
//   - Each invalidation has a time when it is due: its commit plus the bound of the phase, or, where the bound counts from
//     the end of a sweep, that end. A read that begins after that and returns an older version is a violation.
//   - Where a bound counts from the end of healing, reads between the loss and a second after healing count as neither. It is the
//     same for reads of a process while it is frozen, and for 0.1 s after that.
//   - A version that nobody wrote, or the value of another key, is a violation wherever it occurs.
//
// All processes run on one machine, whose monotonic clock they share, so no clocks are compared.
//
// A busy machine must not make a violation: each process has a goroutine that does nothing but sleep for 5 ms, and notes by
// how much it was late. Where a read comes after the due time by no more than such pauses of any process within the
// invalidation's time, it is excused, and counted as such. Nothing else is.
//
// The token of each write goes to another process, which must read that version or a newer one, whatever the bound.
//
// An invalidation is raced if a fill of its key was in flight at its UNLINK. What is counted are the fills that Redis
// refused: each had a lease that an UNLINK has taken away, and a key has one lease at a time. Writers write a key several
// times in a row and loaders are slow on purpose, so that races are plenty. (In phases in which Redis loses its data a
// lease may be lost with them; those refusals are not counted.)
//
// What it does not see: a staleness that no reader looks at. So some readers follow the commits and read those keys again
// and again until they see the new version in both layers.
package verify
