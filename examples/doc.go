// Package examples shows how an application enqueues with database/sql, sqlx, GORM and ent, each in
// the transaction of its change, and how its rows keep OpenTelemetry traces. Other functions read,
// limit, create an order once, and keep user sessions. The module is separate: applications that
// import unstale do not get those libraries. Pages of docs/ and the README show these functions
// word for word, or link to them.
package examples
