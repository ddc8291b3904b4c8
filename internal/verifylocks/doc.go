// Package verifylocks is the meter of locks: holders in processes of their own raise counters of MySQL in sections of package
// lock, while they and the servers break, and no counter may lack a section.
//
// A section reads its counter, adds one and writes that. A trigger notes each value that is written, and by which process, in
// a ledger. Two sections that have read the same value lose one: then the ledger has more rows than the counter says, and a
// value twice. Guarded sections do all of it in InTx. Bare sections have the lease alone: they read, compute for a while and
// write, each in a statement of its own. Both run in the same processes at the same time, with each backend, and bare ones must
// lose some, or the run proves nothing of that backend.
//
// How a turn is judged, in one snapshot, when its holders have ended:
//
//   - The counter of guarded sections is the number of their rows in the ledger, and these have the values from 1 to it.
//   - What a process was told to be committed is in the ledger.
//   - What a process was told not to be kept is not: a process that was not killed has no more rows than commits, those of
//     unknown outcome included.
//
// The judge looks at MySQL alone. It knows neither tokens nor leases, and no time is compared with another.
package verifylocks
