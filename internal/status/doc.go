// Package status is the only judge of whether anything is stale, since when, why, and what to do
// about it: for `unstale status`, `doctor` and the console. A [Looker] reads the tables, and what
// workers publish in Redis about themselves, which is known while MySQL refuses writes, too. [Judge]
// queries no server.
//
// If the tables do not prove the answer, the status is "unknown" and never "fresh". "Fresh"
// requires a worker whose record is at most ten seconds old and that works, so it has compared
// Redis with the journal.
package status
