// Package invalidation knows what a change makes stale. It reads mapping.yaml, checks it, compiles it to an immutable
// Map, and expands a Row (what an application wrote to the outbox) into a Plan: exact keys, patterns and index sets.
//
// Guarantees:
//  1. Pure, but for ReadFile: no I/O, no clock, no global state. The same map and the same row give the same plan.
//  2. Ids and parameters reach exact keys verbatim. In patterns they are escaped, so that they match only themselves.
//  3. A plan's size is checked before it is built, so that no row can exhaust the memory.
//  4. A map with a fault is refused whole, and every fault of what it says is reported with its place and its cure.
//
// What it does not do: it opens no connection, runs no lookup (it says which are needed) and unlinks nothing.
package invalidation
