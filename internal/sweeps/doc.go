// Package sweeps contains the SQL for the table of sweep requests: it requests, lists, finishes and
// postpones sweeps, and keeps the lock, the progress and the failure of the workers that sweep.
//
// The package uses MySQL only. It does not depend on Redis or on the map.
package sweeps
