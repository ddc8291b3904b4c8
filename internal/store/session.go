package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// A session is what one pool pins in each of its sessions, whatever the server, init_connect or the data source name
// say: what our statements mean, how long they wait for locks, how long they run, and when the server ends a session
// whose client has vanished. See docs/sessions.md.
type session struct {
	silence  time.Duration // the client may be silent that long; whole seconds
	lockWait time.Duration // for a row or for a table; whole seconds
	limit    time.Duration // of one statement; on MySQL only of a SELECT; 0: none
	readOnly bool
	snapshot bool // REPEATABLE READ in the place of READ COMMITTED
}

func (s session) isolation() string {
	if s.snapshot {
		return "REPEATABLE READ"
	}
	return "READ COMMITTED"
}

// A pin is one system variable with the value that a session pins.
type pin struct{ name, value string }

// text is the value without the quotes of SQL.
func (p pin) text() string { return strings.Trim(p.value, "'") }

// is reports whether the server shows the value; a fraction it may write with more digits.
func (p pin) is(got string) bool {
	want := p.text()
	if a, err := strconv.ParseFloat(got, 64); err == nil && strings.Contains(got, ".") {
		b, err := strconv.ParseFloat(want, 64)
		return err == nil && a == b
	}
	return got == want
}

// sqlMode is strict, so that nothing is cut in silence, and nothing else: no ANSI_QUOTES, no NO_BACKSLASH_ESCAPES, none
// of MariaDB's dialects, and no NO_ZERO_DATE, so that a row with such a date can be moved.
const sqlMode = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"

// lookupMode also refuses a lookup whose rows for one ID depend on the other IDs that it is asked
// for.
const lookupMode = "ONLY_FULL_GROUP_BY," + sqlMode

func (s session) sqlMode() string {
	if s.readOnly {
		return lookupMode
	}
	return sqlMode
}

// common are the pins that both servers know.
func (s session) common() []pin {
	silence, lockWait := seconds(s.silence), seconds(s.lockWait)
	return []pin{
		{"wait_timeout", silence}, {"net_read_timeout", silence}, {"net_write_timeout", silence},
		{"lock_wait_timeout", lockWait}, {"innodb_lock_wait_timeout", lockWait},
		{"autocommit", "1"}, {"completion_type", "'NO_CHAIN'"}, {"time_zone", "'+00:00'"}, {"sql_mode", "'" + s.sqlMode() + "'"},
		{"sql_safe_updates", "0"}, {"sql_big_selects", "1"}, {"sql_select_limit", "18446744073709551615"},
	}
}

// ofMySQL are pins that only MySQL knows.
func (s session) ofMySQL() []pin {
	return []pin{
		{"max_execution_time", fmt.Sprint(s.limit.Milliseconds())},
		{"information_schema_stats_expiry", "0"}, // 0: nextID is not answered from a cache that may be a day old
	}
}

// ofMariaDB are pins that only MariaDB knows.
func (s session) ofMariaDB() []pin {
	return []pin{{"max_statement_time", fmt.Sprint(s.limit.Seconds())}}
}

// characteristics are those of transactions, for which SET has a syntax of its own. Each server has its own name for
// the variables.
func (s session) characteristics(isolation, readOnly string) []pin {
	pins := []pin{{isolation, strings.ReplaceAll(s.isolation(), " ", "-")}, {readOnly, "0"}}
	if s.readOnly {
		pins[1].value = "1"
	}
	return pins
}

// A comment that only one of the servers executes.
const (
	onlyMySQL   = " /*!80000 , %s */"
	onlyMariaDB = " /*M!100100 , %s */"
)

// Contract for all: session settings, no lock, one row at most.

// setSQL are the statements that pin.
func (s session) setSQL() []string {
	access := "READ WRITE"
	if s.readOnly {
		access = "READ ONLY"
	}
	assign := func(pins []pin) string {
		var list []string
		for _, p := range pins {
			list = append(list, p.name+"="+p.value)
		}
		return strings.Join(list, ", ")
	}
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL " + s.isolation() + ", " + access,
		"SET SESSION " + assign(s.common()) + fmt.Sprintf(onlyMySQL, assign(s.ofMySQL())) + fmt.Sprintf(onlyMariaDB, assign(s.ofMariaDB())),
	}
}

// readBackSQL asks for every pin, in a column of its name.
func (s session) readBackSQL() string {
	ask := func(pins []pin) string {
		var list []string
		for _, p := range pins {
			list = append(list, "@@SESSION."+p.name+" AS "+p.name)
		}
		return strings.Join(list, ", ")
	}
	mysql, mariaDB := s.byServer()
	return "SELECT " + ask(s.common()) + fmt.Sprintf(onlyMySQL, ask(mysql)) + fmt.Sprintf(onlyMariaDB, ask(mariaDB))
}

// byServer are the pins beside the common ones.
func (s session) byServer() (mysql, mariaDB []pin) {
	return append(s.ofMySQL(), s.characteristics("transaction_isolation", "transaction_read_only")...),
		append(s.ofMariaDB(), s.characteristics("tx_isolation", "tx_read_only")...)
}

// pinned is a driver.Connector whose sessions are pinned before anybody uses them.
type pinned struct {
	driver.Connector
	session session
}

// Connect implements driver.Connector.
func (p pinned) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.pin(ctx, conn); err != nil {
		_ = conn.Close() // err says why; a close error adds nothing
		return nil, fmt.Errorf("prepare session: %w", err)
	}
	return &preparing{conn.(driverConn), map[string]driver.Stmt{}}, nil
}

// pin sets the pins and reads them back, because a proxy may swallow a SET.
func (p pinned) pin(ctx context.Context, conn driver.Conn) error {
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
				want.name, got, want.text()))
		}
	}
	return nil
}

// readRow reads the one row of a query, by the names of its columns.
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
