// Package chaos looks for lost invalidations. A shop writes transactions while a schedule kills
// workers, restarts and fails over servers and disturbs the network. Then a checker reads MySQL and
// Redis and determines the outcome of each transaction.
//
// It runs real servers and the real program, and uses only its command line and SQL. It imports no
// code of the worker, so it cannot share a misunderstanding.
//
// Every transaction owns its keys and sets them before it commits. It also inserts its number into
// a ledger, a table that is independent of the outbox. The ledger shows the outcome of a COMMIT
// whose reply was lost. At a quiet moment, when no row waits,
//
//   - the keys of committed transactions must be gone,
//   - the keys of rolled-back transactions must exist,
//   - every dead letter must be a row that was bad on purpose, with a reason, and every such row
//     must be a dead letter.
//
// A transaction whose keys Redis may have lost together with its data proves nothing and is counted
// separately. A committed transaction whose key exists is a failure in any case.
//
// All decisions of the schedule follow from a seed. Their effect depends on the timing of the
// machine. So a seed repeats the faults and their order, but not each transaction.
package chaos
