// Package examples shows how an application enqueues with database/sql, sqlx, GORM and ent, each in the transaction of
// its change. It is a module of its own, so that nobody who imports unstale gets those libraries. docs/adopting.md and
// the README show these functions word for word.
package examples
