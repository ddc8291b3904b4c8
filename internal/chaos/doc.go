// Package chaos looks for lost invalidations. A shop writes transactions while a schedule kills workers, restarts and
// fails over servers and disturbs the network; then a judge reads MySQL and Redis and says what became of each
// transaction.
//
// It runs real servers and the real program, which it knows by its command line and by SQL alone: it imports nothing
// that the worker is made of, so that no misunderstanding is shared.
//
// Every transaction owns its keys and sets them before it commits. It also inserts its number into a ledger, a table
// that has nothing to do with the outbox, so that the outcome of a COMMIT whose answer got lost is known. At a quiet
// moment, when nothing waits any more,
//
//   - the keys of committed transactions must be gone,
//   - the keys of rolled-back transactions must be there,
//   - every dead letter must be a row that was bad on purpose, with a reason, and every such row must be one.
//
// A transaction whose keys a Redis may have lost together with its data proves nothing and is counted apart; but a
// committed transaction whose key is there is a fault in any case.
//
// All decisions of the schedule follow from a seed. What the processes make of it depends on the machine's timing, so a
// seed repeats the faults and their order, not each transaction.
package chaos
