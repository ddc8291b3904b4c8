// Package history finds out when and why keys were unlinked: for `unstale history` and for the
// console. It reads the journal, the tables of rows that wait, and Redis.
package history
