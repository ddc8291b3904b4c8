// Package examples shows how an application enqueues with database/sql, sqlx, GORM and ent, each in the transaction of
// its change, and how its rows carry traces of OpenTelemetry. It is a module of its own, so that nobody who imports
// unstale gets those libraries. docs/adopting.md, docs/tracing.md and the README show these functions word for word.
package examples
