// Package operate contains the SQL for what operators do and see: dead letters, delayed rows, the
// pause, the audit, the record of a replay, the status of all tables, and the status records of
// workers.
//
// The package uses MySQL only. It does not depend on Redis or on the map.
package operate
