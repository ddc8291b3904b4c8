// Package invalidation determines which keys a change makes stale. It reads mapping.yaml, checks
// it, compiles it to an immutable Map, and expands a Row (what an application wrote to the outbox)
// into a Plan: exact keys, patterns and index sets.
//
// Guarantees:
//
//  1. Pure, except ReadFile: no I/O, no clock, no global state. The same map and the same row
//     give the same plan.
//  2. IDs and parameters reach exact keys verbatim. In patterns they are escaped and match only
//     themselves.
//  3. The size of a plan is checked before it is built, so no row can exhaust memory.
//  4. A map with an error is refused as a whole, and every error is reported with its place and
//     its fix.
//
// Limits: the package opens no connection, runs no lookup (it returns which are needed) and unlinks
// nothing.
package invalidation
