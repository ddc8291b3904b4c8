// Package doctor checks an installation for common problems around a worker: privileges, settings,
// the map, clocks, and with accounts for an audit the servers. It changes nothing that other
// clients can see.
//
// A check that cannot be made has a finding of severity Unknown: no finding never means that all is
// well. It never uses KEYS, MONITOR or CONFIG SET, and tries no command that could do harm.
package doctor
