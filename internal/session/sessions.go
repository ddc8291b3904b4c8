package session

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/outbox"
)

// Sessions are the worker's connections to MySQL, in separate pools (see pool.go): no other
// statement waits for a claim, and no lookup can affect one. Safe for concurrent use. They connect
// on first use.
type Sessions struct {
	Config Config
	Claims *sqlx.DB // for transactions that hold rows, and for polls
	Side   *sqlx.DB // for everything else

	lookups *sql.DB
	schema  *sql.DB
	status  *statusWriter
	commits commitWatch

	patience time.Duration // how long the client waits for one statement
}

// Open checks cfg and returns Sessions. It does not connect. A session prepares the statements in
// prepared when it first runs them.
func Open(cfg Config, prepared ...string) (*Sessions, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dsn, err := cfg.driver()
	if err != nil {
		return nil, err
	}
	s := &Sessions{Config: cfg, patience: cfg.patience(dsn)}
	connect := func(p pool) (db *sql.DB) {
		if err == nil {
			db, err = p.connect(dsn, cfg.Worker, prepared)
		}
		return db
	}
	claims, side, status := connect(cfg.claiming(dsn)), connect(cfg.beside(dsn)), connect(cfg.noting(dsn))
	schema := cfg.migrating()
	schema.read = dsn.ReadTimeout
	s.lookups, s.schema = connect(cfg.lookingUp()), connect(schema)
	if err != nil {
		return nil, err
	}
	s.Claims, s.Side = sqlx.NewDb(claims, "mysql"), sqlx.NewDb(side, "mysql")
	s.status = newStatusWriter(status, &s.commits, s.commitLimit()+noteGrace)
	return s, nil
}

// Close closes all pools. The server rolls back a claim that is still open.
func (s *Sessions) Close() error {
	return errors.Join(s.status.close(), s.Claims.Close(), s.Side.Close(), s.lookups.Close(), s.schema.Close())
}

// DB returns the pool for short statements outside claims, such as the check of the schema.
func (s *Sessions) DB() *sql.DB { return s.Side.DB }

// SchemaDB returns the pool for migrations. Its statements may take as long as their ctx allows,
// but wait for a lock for only a second.
func (s *Sessions) SchemaDB() *sql.DB { return s.schema }

// ClaimTimeout returns how long the server waits before it disconnects a claimer that vanished.
func (s *Sessions) ClaimTimeout() time.Duration { return s.Config.ClaimTimeout }

// Ping checks that the server responds on the claiming pool, with its session settings.
func (s *Sessions) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return dberr.Wrap(s.Claims.PingContext(ctx), "reach mysql")
}

// Contract: the dictionary of the current schema; no lock on rows. Without the aliases, MySQL 8
// returns upper-case column names.
const enginesSQL = `SELECT table_name AS table_name, engine AS engine FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%' AND engine <> 'InnoDB'`

// A SettingError describes a server setting that breaks claims, and its fix.
type SettingError string

// Error implements error.
func (e SettingError) Error() string { return string(e) }

// Check returns a SettingError for each server setting that breaks claims, or nil. The schema must
// exist (see package migrations).
func (s *Sessions) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return errors.Join(s.checkBinlog(ctx), s.checkEngines(ctx), s.checkAutoInc(ctx))
}

// checkBinlog refuses binlog_format STATEMENT, since READ COMMITTED cannot write a statement-based
// log (error 1665).
func (s *Sessions) checkBinlog(ctx context.Context) error {
	on, err := s.Variable(ctx, "@@GLOBAL.log_bin")
	if err != nil || on != "1" {
		return err
	}
	format, err := s.Variable(ctx, "@@GLOBAL.binlog_format")
	if err == nil && strings.EqualFold(format, "STATEMENT") {
		err = SettingError("binlog_format is STATEMENT, so READ COMMITTED cannot write; set it to ROW or MIXED on the server")
	}
	return err
}

// IsJoining reports whether the server may be a node that joins a group or leaves it: super_read_only
// is on. Its databases may be missing or old until it has joined. It needs no database.
func (s *Sessions) IsJoining(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	config := s.Config.MySQL.Clone()
	config.DBName = ""
	db, err := s.Config.migrating().connect(config, s.Config.Worker, nil)
	if err != nil {
		return false
	}
	defer db.Close()
	var on bool
	return db.QueryRowContext(ctx, "SELECT @@GLOBAL.super_read_only").Scan(&on) == nil && on
}

func (s *Sessions) checkEngines(ctx context.Context) error {
	var tables []struct {
		Name   string `db:"table_name"`
		Engine string `db:"engine"`
	}
	if err := s.Side.SelectContext(ctx, &tables, enginesSQL); err != nil {
		return fmt.Errorf("check table engines: %w", err)
	}
	for _, t := range tables {
		return SettingError(fmt.Sprintf("table %s uses engine %s, which has no transactions; run ALTER TABLE %s ENGINE = InnoDB", t.Name, t.Engine, t.Name))
	}
	return nil
}

// checkAutoInc refuses innodb_autoinc_lock_mode 0: every insert then locks the table's counter
// until its statement ends, so other inserts wait for a long INSERT ... SELECT into cache_outbox.
func (s *Sessions) checkAutoInc(ctx context.Context) error {
	mode, err := s.Variable(ctx, "@@GLOBAL.innodb_autoinc_lock_mode")
	if err == nil && mode == "0" {
		err = SettingError("innodb_autoinc_lock_mode is 0, so inserts wait for each other; set it to 2 (or 1) in the server's configuration")
	}
	return err
}

// Variable returns the value of a server variable such as @@GLOBAL.log_bin, or an empty string if
// the server does not have it.
func (s *Sessions) Variable(ctx context.Context, name string) (string, error) {
	var v string
	err := s.Side.GetContext(ctx, &v, "SELECT "+name)
	if mysqlerr.Number(err) == mysqlerr.UnknownVariable {
		return "", nil
	}
	return v, dberr.Wrap(err, "check server settings")
}

// A Place is the location of an outbox.
type Place struct {
	Server string // the ID of the server, or of its Galera cluster or replication group
	Schema string // the name of the database
}

// Contract for both: no lock, no table. A server without an ID (MariaDB before 10.11.9) is
// identified by its host and port.
const (
	serverSQL  = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('group_replication_group_name', 'server_uuid', 'server_uid', 'hostname', 'port', 'read_only', 'innodb_read_only')"
	clusterSQL = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'"
)

// Primary returns a session and the location of the outbox there. The caller closes the session. If
// the server is read-only, the error is outbox.ErrReadOnly: it may have been the primary before a
// failover, so Primary drops the session, and the next call connects again.
func (s *Sessions) Primary(ctx context.Context) (conn *sqlx.Conn, p Place, err error) {
	if conn, err = s.Side.Connx(ctx); err == nil {
		p, err = place(ctx, conn)
		if errors.Is(err, outbox.ErrReadOnly) {
			dberr.Discard(conn.Conn)
		} else if err != nil {
			_ = conn.Close()
		}
	}
	return conn, p, dberr.Wrap(err, "locate the outbox")
}

// place returns the location of the outbox on a server that accepts writes.
func place(ctx context.Context, db sqlx.QueryerContext) (p Place, err error) {
	known := map[string]string{}
	for _, query := range []string{serverSQL, clusterSQL} {
		var list []struct {
			Name  string `db:"Variable_name"`
			Value string `db:"Value"`
		}
		if err := sqlx.SelectContext(ctx, db, &list, query); err != nil {
			return p, err
		}
		for _, v := range list {
			known[v.Name] = v.Value
		}
	}
	if known["read_only"] != "OFF" || cmp.Or(known["innodb_read_only"], "OFF") != "OFF" {
		return p, outbox.ErrReadOnly
	}
	p.Server = cmp.Or(known["wsrep_cluster_state_uuid"], known["group_replication_group_name"], known["server_uuid"], known["server_uid"],
		known["hostname"]+":"+known["port"])
	return p, sqlx.GetContext(ctx, db, &p.Schema, "SELECT DATABASE()")
}

// Source returns the random ID of the outbox.
func (s *Sessions) Source(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return outbox.Source(ctx, s.Side.DB)
}

// Contract: the single row of cache_outbox_source, locked until the commit. An account that may
// migrate has the privileges; it may not UPDATE.
const (
	lockSourceSQL    = "SELECT id FROM cache_outbox_source WHERE one = 1 FOR UPDATE"
	deleteSourceSQL  = "DELETE FROM cache_outbox_source WHERE one = 1"
	replaceSourceSQL = "INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 32))"
)

// ReplaceSource replaces the random ID of the outbox and returns the new one. If the current ID is
// not old, it changes nothing and returns an error.
func (s *Sessions) ReplaceSource(ctx context.Context, old string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	if _, err = s.Source(ctx); err != nil { // of several outboxes, none is replaced
		return "", err
	}
	err = s.InTx(ctx, s.Side, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := tx.GetContext(ctx, &id, lockSourceSQL); err != nil {
			return fmt.Errorf("read the ID: %w", err)
		}
		if id != old {
			return fmt.Errorf("the ID of the outbox is %s and not %s; nothing is changed", id, old)
		}
		for _, statement := range []string{deleteSourceSQL, replaceSourceSQL} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("replace the ID: %w", err)
			}
		}
		return tx.GetContext(ctx, &id, lockSourceSQL)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// Contract: no lock on rows; the dictionary, bypassing its cache (see the session's settings). A
// table that never had a row may have no counter yet.
const nextIDSQL = "SELECT COALESCE(MAX(AUTO_INCREMENT), 1) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"

// NextID returns the ID that the next row of a table gets. The greatest ID is never assigned: at
// that value, the table has no ID left.
func (s *Sessions) NextID(ctx context.Context, table string) (id uint64, err error) {
	err = s.Side.GetContext(ctx, &id, nextIDSQL, table)
	return max(id, 1), err
}

// Chunk is how many rows one statement writes.
const Chunk = 500

// maxErrorBytes bounds a row's error text; the column holds 65,535.
const maxErrorBytes = 4096

// RemoveSQL deletes rows of a table. Contract: exclusive record locks on the rows listed, which the
// claim holds already, found by primary key; reads no other row. Deletes as many rows as are
// listed. Repeating it deletes nothing.
const RemoveSQL = `DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Affected returns how many rows a statement changed.
func Affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// AppendIDs appends the ID of each item.
func AppendIDs[T any](ids []uint64, items []T, id func(T) uint64) []uint64 {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
}

// ErrorText returns the start of an error text, cut at a character.
func ErrorText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorBytes], "") + "..."
}

// Exec executes one statement in the side pool, within the statement timeout.
func (s *Sessions) Exec(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	_, err := s.Side.ExecContext(ctx, query, args...)
	return err
}

// ReadRows reads all rows of a query into a slice, in the side pool, within the statement timeout.
func (s *Sessions) ReadRows(ctx context.Context, into any, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return s.Side.SelectContext(ctx, into, query, args...)
}

// ReadRow is like ReadRows for the first row, of one value or into a struct. Without a row, its
// error is sql.ErrNoRows.
func (s *Sessions) ReadRow(ctx context.Context, into any, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return s.Side.GetContext(ctx, into, query, args...)
}

// FindRow returns the first row of a query, as ReadRow reads it, or nil if there is none.
func FindRow[T any](ctx context.Context, s *Sessions, query string, args ...any) (*T, error) {
	row := new(T)
	switch err := s.ReadRow(ctx, row, query, args...); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return row, nil
}

// InTx calls do with a transaction of a pool, and commits it unless do returns an error. Both
// together have the statement timeout.
func (s *Sessions) InTx(ctx context.Context, pool *sqlx.DB, do func(context.Context, *sqlx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	tx, err := pool.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := do(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
