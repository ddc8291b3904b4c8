// Package prove tries on an operator's own servers what unstale relies on: in an empty database, and
// with keys of a random prefix. Its report names versions, but no host, account or password.
//
// It writes to no other database, and scans nothing, so it does not try patterns. It drops its
// tables and unlinks its keys. What a killed process leaves in Redis ends after ten minutes, and
// beacons, whose names are random, after two.
package prove
