// Package migrations owns the schema of the outbox: one SQL file per change, embedded, applied with goose. The files are
// plain goose SQL, so the goose command runs them too:
//
//	goose -dir migrations -table cache_outbox_version mysql "$MYSQL_DSN" up
//
// but without the turns that [Up] and [Down] take.
//
// Every migration is one idempotent DDL statement, because MySQL commits around DDL: a run that was cut off is repaired
// by running it again. Replicas that start together take turns (see [Up]).
package migrations
