package session

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/dberr"
)

// A session defines the settings that a pool pins in each of its sessions, regardless of the
// server, of init_connect and of the data source name. The settings fix the meaning of the
// package's statements, how long they wait for locks and how long they run, and when the server
// ends a session whose client has vanished. See docs/settings.md.
type session struct {
	silence  time.Duration // how long the client may be idle; whole seconds
	lockWait time.Duration // for a row or for a table; whole seconds
	limit    time.Duration // of one statement; on MySQL only of a SELECT; 0: none
	readOnly bool
	snapshot bool // REPEATABLE READ instead of READ COMMITTED
}

func (s session) isolation() string {
	if s.snapshot {
		return "REPEATABLE READ"
	}
	return "READ COMMITTED"
}

// A pin is one system variable with the value that a session pins.
type pin struct{ name, value string }

// unquoted returns the value without SQL quotes.
func (p pin) unquoted() string { return strings.Trim(p.value, "'") }

// is reports whether got, as the server shows it, equals the value. A fraction may have more
// digits.
func (p pin) is(got string) bool {
	want := p.unquoted()
	if a, err := strconv.ParseFloat(got, 64); err == nil && strings.Contains(got, ".") {
		b, err := strconv.ParseFloat(want, 64)
		return err == nil && a == b
	}
	return got == want
}

// sqlMode is strict, so no value is cut silently, and sets nothing else: no ANSI_QUOTES, no
// NO_BACKSLASH_ESCAPES, no dialect of MariaDB. It leaves out NO_ZERO_DATE, so that rows with such
// dates can be moved.
const sqlMode = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"

// lookupMode also refuses a lookup whose rows for one ID depend on the other IDs of the same query.
const lookupMode = "ONLY_FULL_GROUP_BY," + sqlMode

func (s session) sqlMode() string {
	if s.readOnly {
		return lookupMode
	}
	return sqlMode
}

// common returns the pins for both servers.
func (s session) common() []pin {
	silence, lockWait := seconds(s.silence), seconds(s.lockWait)
	return []pin{
		{"wait_timeout", silence}, {"net_read_timeout", silence}, {"net_write_timeout", silence},
		{"lock_wait_timeout", lockWait}, {"innodb_lock_wait_timeout", lockWait},
		{"autocommit", "1"}, {"completion_type", "'NO_CHAIN'"}, {"time_zone", "'+00:00'"}, {"sql_mode", "'" + s.sqlMode() + "'"},
		{"sql_quote_show_create", "1"}, {"sql_safe_updates", "0"}, {"sql_big_selects", "1"}, {"sql_select_limit", "18446744073709551615"},
	}
}

// ofMySQL returns the pins that only MySQL supports.
func (s session) ofMySQL() []pin {
	return []pin{
		{"max_execution_time", fmt.Sprint(s.limit.Milliseconds())},
		{"information_schema_stats_expiry", "0"}, // no cache, which may be a day old, for NextID
		// with utf8mb4_general_ci, reading information_schema.applicable_roles fails (1267)
		{"default_collation_for_utf8mb4", "'utf8mb4_0900_ai_ci'"},
	}
}

// ofMariaDB returns the pins that only MariaDB supports.
func (s session) ofMariaDB() []pin {
	return []pin{{"max_statement_time", fmt.Sprint(s.limit.Seconds())}}
}

// characteristics returns the pins of the transaction characteristics, which SET sets in a separate
// syntax. Each server has different names for the variables.
func (s session) characteristics(isolation, readOnly string) []pin {
	pins := []pin{{isolation, strings.ReplaceAll(s.isolation(), " ", "-")}, {readOnly, "0"}}
	if s.readOnly {
		pins[1].value = "1"
	}
	return pins
}

// Comments that only one of the servers executes.
const (
	onlyMySQL   = " /*!80000 , %s */"
	onlyMariaDB = " /*M!100100 , %s */"
)

// Contract for all: session settings, no lock, one row at most.

// setSQL returns the statements that set the pins.
func (s session) setSQL() []string {
	access := "READ WRITE"
	if s.readOnly {
		access = "READ ONLY"
	}
	assign := func(pins []pin) string { return joinPins(pins, func(p pin) string { return p.name + "=" + p.value }) }
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL " + s.isolation() + ", " + access,
		"SET SESSION " + assign(s.common()) + fmt.Sprintf(onlyMySQL, assign(s.ofMySQL())) + fmt.Sprintf(onlyMariaDB, assign(s.ofMariaDB())),
	}
}

// readBackSQL returns a query that selects every pin, in a column of its name.
func (s session) readBackSQL() string {
	ask := func(pins []pin) string {
		return joinPins(pins, func(p pin) string { return "@@SESSION." + p.name + " AS " + p.name })
	}
	mysql, mariaDB := s.byServer()
	return "SELECT " + ask(s.common()) + fmt.Sprintf(onlyMySQL, ask(mysql)) + fmt.Sprintf(onlyMariaDB, ask(mariaDB))
}

// joinPins returns a list of SQL terms, one for each pin.
func joinPins(pins []pin, term func(pin) string) string {
	terms := make([]string, len(pins))
	for i, p := range pins {
		terms[i] = term(p)
	}
	return strings.Join(terms, ", ")
}

// byServer returns the pins that are specific to each server.
func (s session) byServer() (mysql, mariaDB []pin) {
	return append(s.ofMySQL(), s.characteristics("transaction_isolation", "transaction_read_only")...),
		append(s.ofMariaDB(), s.characteristics("tx_isolation", "tx_read_only")...)
}

// pinned is a driver.Connector that pins the settings of a session before its first use.
type pinned struct {
	driver.Connector
	session   session
	prepared  []string
	certified bool // it has a client's certificate
}

// Connect implements driver.Connector.
func (p pinned) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	// The driver does not report the server's reason. The second error has no name.
	if p.certified && err != nil && (errors.Is(err, mysql.ErrInvalidConn) || err.Error() == "bad connection") {
		return nil, fmt.Errorf("%w in the handshake; if the server refuses the client's certificate, name one that it accepts in MYSQL_TLS_CERT_FILE", err)
	}
	if err != nil {
		return nil, credentials.WithTLSCure(err, "MYSQL_TLS_")
	}
	if err := p.pin(ctx, conn); err != nil {
		_ = conn.Close() // err has the cause; a close error adds nothing
		return nil, fmt.Errorf("prepare session: %w", err)
	}
	return &preparing{conn.(driverConn), p.prepared, map[string]driver.Stmt{}}, nil
}

// bannerSQL returns a server's names for itself. Proxies answer shorter forms of it themselves.
const bannerSQL = "SELECT VERSION() AS version, @@version_comment AS comment"

// lockless are servers that accept SKIP LOCKED and lock nothing, so two workers claim the same row.
// Their banners contain these names: "8.0.11-TiDB-v8.5.0" is a version, "Dolt" a comment.
var lockless = []string{"TiDB", "Dolt"}

// pin sets the pins and reads them back, because a proxy may swallow a SET. It first refuses VTGate
// and lockless servers: they refuse pins too, with an error that does not name the cause.
func (p pinned) pin(ctx context.Context, conn driver.Conn) error {
	banner, err := readRow(ctx, conn, bannerSQL)
	if err != nil {
		return err
	}
	names := banner["version"] + " " + banner["comment"]
	if dberr.IsVTGate(names) {
		return SettingError(dberr.ErrVTGate.Error())
	}
	for _, name := range lockless {
		if strings.Contains(names, name) {
			return SettingError(fmt.Sprintf("the server is %s (version %s), which takes no lock for SKIP LOCKED, so two workers would claim the same row; "+
				"use MySQL 8.0.20, MariaDB 10.6, or a later version", name, banner["version"]))
		}
	}
	exec := conn.(driver.ExecerContext)
	for _, stmt := range p.session.setSQL() {
		if _, err := exec.ExecContext(ctx, stmt, nil); err != nil {
			return err
		}
	}
	have, err := readRow(ctx, conn, p.session.readBackSQL())
	if err != nil {
		return err
	}
	mysql, mariaDB := p.session.byServer()
	own := mysql
	if _, ok := have[mariaDB[0].name]; ok {
		own = mariaDB
	}
	for _, want := range append(p.session.common(), own...) {
		if got, ok := have[want.name]; !ok || !want.is(got) {
			return SettingError(fmt.Sprintf("the server keeps %s at %q, asked for %q; connect to it directly or let the proxy pass SET, comments included",
				want.name, got, want.unquoted()))
		}
	}
	return nil
}

// readRow returns the single row of a query, by column name.
func readRow(ctx context.Context, conn driver.Conn, query string) (map[string]string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // it has one row
	columns := rows.Columns()
	values := make([]driver.Value, len(columns))
	if err := rows.Next(values); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	row := make(map[string]string, len(columns))
	for i, name := range columns {
		if b, ok := values[i].([]byte); ok {
			row[name] = string(b)
		} else {
			row[name] = fmt.Sprint(values[i])
		}
	}
	return row, nil
}

func seconds(d time.Duration) string { return fmt.Sprint(int64(d / time.Second)) }

// A pool defines how many sessions are opened for one purpose, and which settings they pin.
type pool struct {
	name    string // the connection attribute unstale_pool
	session session
	open    int // sessions at most
	idle    int // of them kept
	rest    time.Duration
	read    time.Duration // longest wait for a reply; 0: until ctx ends
}

const (
	// of the holder of the sweep lock, which checks it every 5 s: see SweepLock.Check
	sideSilence = 10 * time.Second
	// One session of a migration waits while another one alters a table.
	schemaSilence = time.Hour
	lookupGrace   = 500 * time.Millisecond
)

// readTimeout returns how long a client waits for a reply of the server.
func (c Config) readTimeout(dsn *mysql.Config) time.Duration {
	return cmp.Or(dsn.ReadTimeout, c.StatementTimeout)
}

// patience returns how long a client waits for a statement.
func (c Config) patience(dsn *mysql.Config) time.Duration {
	return min(c.readTimeout(dsn), c.StatementTimeout)
}

// claiming returns the pool for transactions that lock rows. Its sessions are short-lived by
// contract: the server ends them if their client vanishes or freezes while idle in a transaction
// (wait_timeout), while receiving a large claim (net_write_timeout) or while sending
// (net_read_timeout).
func (c Config) claiming(dsn *mysql.Config) pool {
	return pool{
		// one for the loop, and one while a dead session is replaced
		name: "claims", open: 2, read: c.readTimeout(dsn),
		idle: 1, rest: c.ClaimTimeout / 2, // never return a session that the server has just ended
		session: session{
			silence: c.ClaimTimeout, lockWait: lockWait(min(c.patience(dsn), c.ClaimTimeout/2-time.Second)), limit: c.ClaimTimeout,
		},
	}
}

// beside returns the pool for all other statements of a worker or a command.
func (c Config) beside(dsn *mysql.Config) pool {
	return pool{
		name: "side", open: 4, idle: 2, rest: sideSilence / 2, read: c.readTimeout(dsn),
		session: session{silence: sideSilence, lockWait: lockWait(c.patience(dsn)), limit: c.patience(dsn)},
	}
}

// noting returns the pool that writes the worker status record: see statusWriter.
func (c Config) noting(dsn *mysql.Config) pool {
	return pool{
		name: "status", open: 1, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(c.patience(dsn))},
	}
}

// lookingUp returns the pool for lookups of the map. They cannot write, and the server ends a
// lookup that its client no longer waits for.
func (c Config) lookingUp() pool {
	return pool{
		name: "lookups", open: 2, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(c.LookupTimeout), limit: c.LookupTimeout, readOnly: true},
	}
}

// migrating returns the pool that changes the schema. A change may take any time, but waits for a
// lock for only a second, since all other statements on the table queue behind it. The pool uses
// REPEATABLE READ, so it also works with a statement-based binary log, and Check can report that
// log afterwards.
func (c Config) migrating() pool {
	return pool{
		name: "schema", open: 4, idle: 2, rest: sideSilence / 2,
		session: session{silence: schemaSilence, lockWait: time.Second, snapshot: true},
	}
}

// lockWait returns how long a server waits for a lock. It is less than its client waits for the
// reply, so the session neither lingers nor is lost. Servers count whole seconds, and wait for at
// least one.
func lockWait(patience time.Duration) time.Duration {
	return max((patience - 1).Truncate(time.Second), time.Second)
}

// connect opens a pool. Only this function opens sessions.
func (p pool) connect(dsn *mysql.Config, worker string, prepared []string) (*sql.DB, error) {
	dsn = dsn.Clone()
	dsn.ReadTimeout = p.read
	dsn.ConnectionAttributes = "program_name:unstale,unstale_worker:" + strings.ReplaceAll(worker, ",", "_") + ",unstale_pool:" + p.name
	if p.session.readOnly {
		dsn.RejectReadOnly = false // a lookup that writes fails; the connection stays usable
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	db := sql.OpenDB(pinned{connector, p.session, prepared, dsn.TLS != nil && len(dsn.TLS.Certificates) > 0})
	db.SetMaxOpenConns(p.open)
	db.SetMaxIdleConns(p.idle)
	db.SetConnMaxIdleTime(p.rest)
	return db, nil
}

// maxPrepared is the largest text, in bytes, of a statement that runs prepared. Above it, preparing
// saves nothing, and an argument that is too large fails as it does in text.
const maxPrepared = 16 << 10

// driverConn lists the interfaces of a go-sql-driver connection that database/sql uses.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A preparing connection runs the statements listed in wanted as prepared statements. The server
// drops them with the session, and prepares them again itself after a table has changed.
type preparing struct {
	driverConn
	wanted []string
	// a nil value: this server, or a proxy in front of it, cannot prepare the statement
	stmts map[string]driver.Stmt
}

// ExecContext implements driver.ExecerContext.
func (c *preparing) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return runPrepared(ctx, c, query, args, driver.StmtExecContext.ExecContext, c.driverConn.ExecContext)
}

// QueryContext implements driver.QueryerContext.
func (c *preparing) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return runPrepared(ctx, c, query, args, driver.StmtQueryContext.QueryContext, c.driverConn.QueryContext)
}

// runPrepared runs a query prepared, or as text if it should not or cannot be prepared.
func runPrepared[S, R any](ctx context.Context, c *preparing, query string, args []driver.NamedValue,
	prepared func(S, context.Context, []driver.NamedValue) (R, error),
	text func(context.Context, string, []driver.NamedValue) (R, error)) (result R, err error) {
	stmt, err := c.prepare(ctx, query, args)
	if err == nil && stmt != nil {
		result, err = prepared(stmt.(S), ctx, args)
	}
	switch {
	case isUnprepared(err): // nothing was done; do not prepare it again
		c.stmts[query] = nil
	case err != nil || stmt != nil:
		return result, err
	}
	return text(ctx, query, args)
}

// prepare returns the prepared statement of a query, or nil if the query must run as text. An error
// is either one that the query itself would return, for example a lock on the table, or
// isUnprepared.
func (c *preparing) prepare(ctx context.Context, query string, args []driver.NamedValue) (driver.Stmt, error) {
	if !slices.Contains(c.wanted, query) || textBytes(args) > maxPrepared {
		return nil, nil
	}
	stmt, known := c.stmts[query]
	if known {
		return stmt, nil
	}
	stmt, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = stmt
	return stmt, nil
}

func textBytes(args []driver.NamedValue) (n int) {
	for _, a := range args {
		if text, ok := a.Value.(string); ok {
			n += len(text)
		}
	}
	return n
}
