// Package migrations owns the schema of the outbox: one SQL file per change, embedded, applied with
// goose. The files are plain goose SQL, so the goose command runs them too:
//
//	goose -dir migrations -table cache_outbox_version mysql "$MYSQL_DSN" up
//
// but without the lock that [Up] and [Down] take.
//
// The first file, the baseline, creates all tables, and its comments describe them: what a row means,
// who writes it, and who deletes it. It has the number of the last of the steps before it, so a
// database with that number has nothing to do. A database with a lower one is refused: [schema.Steps]
// has its steps. The goose command does not refuse it, so look at the version first.
//
// Every later migration is one idempotent DDL statement, because MySQL commits around DDL: a run that
// was cut off is repaired by running it again. Replicas that start together run one at a time (see
// [Up]).
//
// # Compatibility
//
// A schema declares the oldest code that may run on it: the highest value of the column oldest in
// cache_outbox_version. Code runs on a newer schema if its own [schema.Version] is at least that.
// Each file declares the number in a line of its head comment. The line also describes the effect on
// the previous binary:
//
//	-- Oldest code: 21. The previous binary never reads the column, and leaves it NULL.
//
// The previous binary has to keep working. So a migration only adds: tables, indexes, and columns
// that are nullable or have a default. Its line repeats the number of the file before it. It needs
// no SQL for that, because the row of goose gets the default of the column.
//
// A migration can remove what the previous release no longer uses. Its line names the version of
// that release, its Up raises the default, and its Down sets it back:
//
//	ALTER TABLE cache_outbox_version ALTER COLUMN oldest SET DEFAULT 23;
//
// # Locks
//
// A file that alters a table names it, and the algorithm of MySQL. INPLACE or COPY of a table that can
// have millions of rows also has the time that "make bench-migrate" measured. [Previews] returns both:
//
//	-- Alters: cache_outbox_delayed, INPLACE.
//	-- Ten million rows: 15 s, 680,000 rows/s (MySQL 9.7.4, two cores).
//
// Tests compare the lines with the declaration in the schema and with the server, and the tables
// before and after each file. With a new file, also raise [schema.Version], add its indexes to
// [schema.Indexes], and name it in docs/tutorial.md. The baseline stays as it is: testdata has what
// the steps before it left.
package migrations
