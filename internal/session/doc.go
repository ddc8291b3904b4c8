// Package session manages the worker's connections to MySQL: their settings, which each session
// pins and reads back, the pools, the prepared statements, and the classes of errors. It also runs
// the lookups of the map.
//
// The server disconnects a worker that vanishes without closing its connection after
// [Config.ClaimTimeout].
//
// The package supports MySQL 8.0.20 and later, and MariaDB 10.6 and later. It refuses servers that
// are known to take no lock for SKIP LOCKED. It uses no table except cache_outbox_source, which has
// the ID of the outbox.
package session
