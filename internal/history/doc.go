// Package history finds out when and why keys were unlinked, and whether they are stale: a [Finder]
// answers for `unstale history` and for the console. It reads the journal, the tables of rows that
// wait, and Redis.
//
// A [Job] unlinks again what the journal says was unlinked: `unstale replay`. The worker repairs by
// itself what a failover of Redis lost. [ExpandTexts] expands rows that an operator typed, or read
// from a table, as a worker would.
package history
