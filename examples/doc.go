// Package examples shows how an application enqueues with database/sql, sqlx, GORM and ent, each in
// the transaction of its change, how its rows carry traces of OpenTelemetry, how it reads, how it
// limits, how it creates orders once, and how it keeps user sessions. It is a module of its own, so
// that nobody who imports unstale gets those libraries. Pages of docs/ and the README show these
// functions word for word, or link to them.
package examples
