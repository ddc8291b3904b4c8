// Package worker delivers committed rows from MySQL to Redis, inside the program unstale or inside
// a service: [New] takes a [Config], and [Worker.Run] works until its context ends.
//
//	             claim                                  settle + COMMIT
//	waiting ────────────► claimed ─ look up ─ expand ─ UNLINK ─ PUBLISH ────────► settled, in the journal
//	   ▲                     │                            │
//	   │   crash, outage     │ a fault of its own         │ Redis refuses a key
//	   └─────────────────────┤                            ▼
//	                         ├──────────► dead ◄──── delayed ──due──► claimed
//	                         └ cannot pass      attempts used up
//
// Guarantees, which tests cite by number:
//
//  1. Delivery is at least once. A committed row ends unlinked, or waits for a reason that
//     `unstale status` shows, or is a dead letter with a reason. A crash at any point rolls the
//     claim back.
//  2. Nothing happens before the commit of the transaction that inserted the row, and nothing
//     without it.
//  3. A row is settled only after every node has acknowledged the UNLINK of all its keys. The
//     message about them is published after that and before the row is settled. UNLINK is
//     idempotent, and a message may arrive twice.
//  4. Rows have no order. A row that commits late is claimed like any other, with any ID. Rows
//     that are deleted but not purged, for example during a backup, do not slow claims down; rows
//     below them are found within a second, or within a minute if an INSERT chose their ID. A
//     dead letter that is retried is a new row, due immediately; the journal has it under its
//     first ID.
//  5. Two workers never settle one row. No application's insert waits for a worker.
//  6. The fault of one row does not stop others. The row is dead-lettered with its reason, or, if
//     the fault may pass, delayed with exponential backoff and dead-lettered when its attempts
//     are used up. If only a lookup fails, the part that needs no lookup is applied at the first
//     attempt.
//  7. An outage of a server does not count as an attempt of a row: the worker waits and recovers
//     without intervention.
//  8. The rows of a worker that vanishes are free again within the claim timeout.
//  9. A stop finishes the current batch and nothing else, within five seconds.
//  10. Patterns and index sets are requested in the transaction that settles their row, and
//     processed after it; the message about a pattern is published after its sweep.
//  11. Writes that Redis acknowledged and then lost (a failover to a replica that lagged, a
//     restart from an old snapshot) are detected: a worker unlinks the keys again from the
//     journal, and holds them again. This also covers new rows meanwhile, and a loss while no
//     worker ran. The retention of the journal limits how far back that goes.
//  12. A batch that is too large for its deadline, for max_allowed_packet or for the journal is
//     cut, down to a single row, and makes progress. A row that is too large alone is
//     dead-lettered. Heavy rows, which are within the limits of the map but create many names,
//     are processed separately from light ones and take half of the time while these wait.
//  13. A pause keeps every worker from claiming and sweeping, including workers that start
//     meanwhile, until an operator or its end resumes them. The current batch is finished,
//     running sweeps are abandoned, and rows and requests wait.
//  14. A pattern or a set is swept twice: immediately, and again when all leases have ended that
//     readers may have held at the request or during its hold time. A value that such a reader
//     stores after the first sweep therefore does not stay. A longer lease of an earlier map
//     counts until a shorter one is announced and the longer one has ended, even if the workers
//     are restarted meanwhile. One scan of the keyspace sweeps all waiting patterns, and sets are
//     cleared in batches of up to 500. Neither waits for the other: a pattern that is requested
//     during a batch of sets begins after that batch, or within a second. One worker sweeps at a
//     time; its lock is a row in MySQL that a crash releases.
//  15. In Redis Cluster an unavailable master delays only the rows with keys there, without
//     counting an attempt.
//  16. A tombstone keeps readers from storing values under its key, from before the key is
//     unlinked until its end: no worker ends or shortens it.
//  17. Once per second a heartbeat proves to readers that messages arrive, and reports how far
//     behind the invalidation is. Readers can then keep values in L1. A worker sends it only if
//     the loop has polled MySQL within the period or is processing a batch, and is neither
//     paused nor failing. In addition, no COMMIT may hang, no master of a Cluster may be
//     unavailable, and Redis must just have been compared with the settled rows. A worker that
//     stops cleanly sends a final message. When a reload changes the channel, a worker announces
//     it on the old one and publishes on both until it is restarted. It also publishes on the
//     channels of the other workers, and sends a heartbeat only where all living workers publish.
//
// The duplicate window of 1 and 3 is one batch: keys that a crashed worker had unlinked but not
// settled are unlinked and published again. While wake-ups are frequent, a batch collects their
// rows for up to 10 ms: it unlinks and publishes the keys of each claim immediately, and settles
// all rows together.
//
// docs/how-it-works.md#terms defines the terms.
package worker
