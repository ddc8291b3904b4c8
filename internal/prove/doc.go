// Package prove tries on an operator's own servers what unstale relies on. It uses an empty
// database and keys with a random prefix. Its report names versions, but no host, account or
// password.
//
// It writes to no other database, and scans nothing, so it does not try patterns. It drops its
// tables and unlinks its keys. If the process is killed, its keys expire after ten minutes. Beacons
// have random names and expire after two.
package prove
