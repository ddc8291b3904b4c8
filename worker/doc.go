// Package worker carries committed rows from MySQL to Redis, inside the program unstale or inside a service: [New]
// takes a [Config], and [Worker.Run] works until its context ends.
//
//	             claim                                  settle + COMMIT
//	waiting ────────────► claimed ─ look up ─ expand ─ UNLINK ─ PUBLISH ────────► gone, in the journal
//	   ▲                     │                            │
//	   │   crash, outage     │ a fault of its own         │ Redis refuses a key
//	   └─────────────────────┤                            ▼
//	                         ├──────────► dead ◄──── delayed ──due──► claimed
//	                         └ cannot pass      attempts used up
//
// What it promises, in sentences that the tests cite:
//
//  1. Delivery is at least once. A committed row ends unlinked, or waits for a reason that someone can see, or is a
//     dead letter with a reason. A crash at any point rolls the claim back.
//  2. Nothing happens before the commit of the transaction that inserted the row, and nothing without it.
//  3. A row is settled only after every node has answered the UNLINK of all its keys; the message about them is
//     published after that and before the row is settled. A repeat of UNLINK is harmless; a message may be heard twice.
//  4. Rows have no order. A row that commits late is claimed like any other, whatever its id. Rows that are deleted and
//     not purged, as while a backup runs, slow no claim down; rows below them are found within a second, or within a
//     minute where an INSERT chose their id. A dead letter that is put back is a new row, due at once; the journal has
//     it under its first id.
//  5. No row is settled by two workers. No application's insert waits for a worker.
//  6. A row's own fault does not stop its neighbours. It is dead-lettered with its reason, or, if it may pass, delayed
//     with a doubling wait and dead-lettered when its attempts are used up. If only a lookup fails, what needs no
//     lookup is applied at the first attempt.
//  7. An outage of a server does not count against a row's attempts: the worker waits and goes on by itself.
//  8. The rows of a worker that vanishes are free again within the claim timeout.
//  9. A stop finishes the batch in hand and nothing else, within five seconds.
//  10. Patterns and index sets are requested in the transaction that settles their row, and carried out after it; the
//     message about a pattern is published after its sweep.
//  11. What Redis acknowledged and then lost (a failover to a replica that lagged, a restart from an old snapshot) is
//     unlinked again from the journal, and held again, new rows in between, also when it was lost while no worker ran.
//     The journal's retention bounds how far back that goes.
//  12. A batch that is too large for its deadline, for max_allowed_packet or for the journal is cut, down to a single
//     row, and makes progress. A row that is too large alone is dead-lettered. Heavy rows, which are within the limits
//     of the map but make many names, are processed apart from light ones and take half of the time while these wait.
//  13. A pause keeps every worker from claiming and sweeping, also those that start meanwhile, until an operator ends
//     it or its time is over. The batch in hand is finished, sweeps under way are given up, rows and requests wait.
//  14. A pattern or a set is swept once at once and once more when every lease that a reader may have held at the
//     request, or until its hold was over, has run out: what such a reader stores after the first sweep has gone by
//     does not stay. All patterns that wait are swept by one scan of the keyspace, sets are taken apart in batches of
//     up to 500, and neither waits for the other: a pattern that is requested during a batch of sets is begun when that
//     batch is over, or within a second. One worker sweeps at a time; the right to it is a row in MySQL that a crash
//     frees.
//  15. In Redis Cluster a master that is away delays the rows with keys there, without counting an attempt, and no
//     others.
//  16. A hold keeps readers from storing anything under its keys, from before they are unlinked until its time is over:
//     nothing that a worker does ends or shortens it.
//  17. Once per second a heartbeat proves to readers that messages arrive, and says how far behind the
//     invalidation is, so that they may keep values in memory. A worker sends it only if the loop has polled
//     MySQL within the period or has a batch in hand, is neither paused nor failing, no COMMIT hangs, no
//     master of a Cluster is away, and Redis was compared with what was settled just before. A worker that
//     stops in order says goodbye. One whose map changes the channel says so on the old one and publishes on both until it is
//     restarted.
//
// The duplicate window of 1 and 3 is one batch: what a crashed worker had unlinked but not settled is unlinked and
// published again.
//
// The words are those of docs/glossary.md.
package worker
