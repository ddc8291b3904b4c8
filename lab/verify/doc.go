// Package verify is the staleness checker: it compares every read with the commits while faults are
// injected.
//
// Writers raise the version of a row of MySQL and insert the row of the outbox, in one transaction.
// The version of a key only increases, and one writer owns it. When COMMIT has returned, the writer
// records the version and the time in a table that all processes map into memory. Readers are
// separate processes. They read through package cache, and look into the table only after the read,
// so no read depends on the table. A client in another language is asked by this process, which loads
// for it and looks into the table.
//
// How a read is checked:
//
//   - A read that begins at t and returns version v is stale by t - committed(w) for every w > v
//     whose COMMIT had returned by t. The staleness of an invalidation w is the largest of these,
//     over all readers. The recorded time is the time of the reply, so the measured staleness is
//     too short by at most the time of that reply.
//   - Each invalidation has a due time: its commit plus the bound of the phase, or the end of a
//     sweep if the bound counts from there. A read that begins after the due time and returns an
//     older version is a violation.
//   - If a bound counts from the end of healing, reads between the loss and one second after
//     healing are ignored. So are reads of a process while it is frozen, and for 0.1 s after that.
//   - A version that was never written, or the value of another key, is always a violation.
//
// All processes run on one machine and share its monotonic clock, so no clocks are compared.
//
// A busy machine must not cause a violation. Each process has a goroutine that sleeps for 5 ms at a
// time and records how late it wakes. If a read comes after the due time by no more than such
// pauses of any process within the time of the invalidation, the read is excused and counted as
// excused. Nothing else is excused.
//
// The token of each write goes to another process, which must read that version or a newer one.
// This holds without a bound. The bound of the phase applies only if readers of the phase may use
// another server or database than the workers.
//
// An invalidation is raced if a fill of its key was in flight at its UNLINK. The checker counts the
// fills that Redis refused: each had a lease that an UNLINK has deleted, and a key has one lease at
// a time. Writers write a key several times in a row, and loaders are slow on purpose, so races are
// frequent. If Redis loses its data in a phase, leases may be lost as well; the checker does not
// count those refusals.
//
// Limits: staleness that no reader reads is not found. Some readers therefore follow the commits
// and read those keys repeatedly until they see the new version in both layers.
package verify
