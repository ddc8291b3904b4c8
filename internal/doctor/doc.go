// Package doctor checks an installation for common problems around a worker: privileges, settings,
// the map, clocks, and with accounts for an audit the servers. It changes nothing that other
// clients can see.
//
// A check that cannot be made has a finding of severity Unknown: no finding never means that all is
// well. It never uses KEYS, MONITOR or CONFIG SET, and tries no command that could do harm.
//
// The package has four more parts, each with files of its own:
//
//   - The ACL rules of Redis that each kind of client needs: commands, and the names of keys and
//     channels that a map makes. `unstale acl` prints them, checks compare accounts with them, and
//     tests grant them and remove each.
//   - A proof that a map's lookups find for several IDs together the rows that they find for each ID
//     alone. Workers ask for the IDs of a whole batch together.
//   - [Prove] tries on an operator's own servers what unstale relies on. It uses an empty database
//     and keys with a random prefix. Its report names versions, but no host, account or password. It
//     writes to no other database, and scans nothing, so it does not try patterns. It drops its
//     tables and unlinks its keys. If the process is killed, its keys expire after ten minutes.
//     Beacons have random names and expire after two.
//   - A [Review] reports on a walk over a cache's keys. It stores families, not keys, so its memory
//     does not grow with the cache.
package doctor
