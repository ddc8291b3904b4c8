// Package verdict derives the overall status from the tables: whether anything is stale, since
// when, why, and what to do about it. It queries no server.
//
// If the tables do not prove the answer, the status is "unknown" and never "fresh". "Fresh"
// requires a worker whose record is at most ten seconds old and that works, so it has compared
// Redis with the journal.
package verdict
