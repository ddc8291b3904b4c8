// Package verdict says from what the tables tell whether anything is stale, since when, why, and what to do about it. It
// asks nobody. What the tables do not tell is "unknown" and never "fresh": that takes a worker which was heard within
// ten seconds and works, and so has compared Redis with the journal.
package verdict
