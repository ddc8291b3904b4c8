// Package verifylocks is the lock checker: holder processes raise counters of MySQL in critical
// sections of package lock, while they and the servers fail. No counter may lack a section.
//
// A section reads its counter, adds one and writes the result. A trigger records each value that is
// written, and its process, in a ledger. If two sections have read the same value, one update is
// lost: the ledger then has more rows than the counter says, and one value twice. Guarded sections
// do all of it in InTx. Bare sections have only the lease: they read, compute for a while and
// write, each in a separate statement. Both run in the same processes at the same time, with each
// backend. Bare sections must lose some updates, or the run proves nothing about that backend.
//
// How a turn is checked, in one snapshot, when its holders have ended:
//
//   - The counter of guarded sections equals the number of their rows in the ledger, and these
//     have the values from 1 to it.
//   - Every commit that was acknowledged to a process is in the ledger.
//   - No update that was refused is in the ledger: a process that was not killed has no more rows
//     than commits, including those of unknown outcome.
//
// The checker reads only MySQL. It uses neither tokens nor leases, and compares no times.
package verifylocks
