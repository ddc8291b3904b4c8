// Package doctor looks for what goes wrong in practice around a worker: rights, settings, the map, clocks, and with
// accounts for an audit the servers themselves. It changes nothing that anybody else sees.
//
// What it could not look at is a finding of its own, Unknown: silence never means that all is well. It never uses KEYS,
// MONITOR or CONFIG SET, and tries no command that could do harm.
package doctor
