// Package journal contains the SQL for the journal of unlinked names: its batches and their
// encoding, the record that a settlement writes, reading and searching, summaries, expiry,
// positions and claims of batches to heal.
//
// The package uses MySQL only. It does not depend on Redis or on the map.
package journal
