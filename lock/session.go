package lock

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/unstale/unstale/internal/sqltext"
)

// ownStatement marks, in a context, the statements of this package.
type ownStatement struct{}

// errEnded is the error of a second connection of a section.
var errEnded = errors.New("the connection of the guarded transaction is lost")

// A session is a connection that a section borrows. It is the connection of the section's own pool:
// fn gets a *sql.Tx, and every statement and every row passes through this type.
type session struct {
	conn connection
	lent atomic.Bool // once
	// closed when the pool has returned it and conn is no longer used
	back       chan struct{}
	commits    atomic.Bool // now Commit is this package's
	committing atomic.Bool // COMMIT is sent
	open       atomic.Bool // the transaction may be: it was neither committed nor rolled back
	changed    atomic.Bool // by a statement whose effect may outlive the transaction
	mode       string      // sql_mode; set before fn runs

	mu     sync.Mutex
	failed error // the first
}

// A connection is the set of interfaces that a driver must implement: go-sql-driver/mysql and its
// tracing wrappers do.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

func newSession(c any) (*session, error) {
	conn, ok := c.(connection)
	if !ok {
		return nil, fmt.Errorf("the driver's connection, %T, cannot be borrowed: it needs BeginTx, PrepareContext, ExecContext and QueryContext", c)
	}
	return &session{conn: conn, back: make(chan struct{})}, nil
}

// exec runs a statement without arguments outside of the section's transaction.
func (s *session) exec(ctx context.Context, query string) error {
	_, err := s.conn.ExecContext(ctx, query, nil)
	return err
}

// A lender is the connector of the pool of a section. It hands out the session and no other
// connection. The session itself cannot do that: a pool closes its connector too, and earlier.
type lender struct{ session *session }

// Connect implements driver.Connector.
func (l lender) Connect(context.Context) (driver.Conn, error) {
	if l.session.lent.Swap(true) {
		return nil, l.session.keepFirst(errEnded)
	}
	return l.session, nil
}

// Driver implements driver.Connector.
func (l lender) Driver() driver.Driver { return nil }

// failure returns the first error of the section.
func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// keepFirst keeps the first error, and returns err as it is. The end of rows is none, nor a
// driver's word that it takes a statement in another way.
func (s *session) keepFirst(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, driver.ErrSkip) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	return err
}

// admit refuses a statement after an error, and one that may commit.
func (s *session) admit(ctx context.Context, query string) error {
	if err := s.failure(); err != nil {
		return asBroken(err)
	}
	if ctx.Value(ownStatement{}) != nil {
		return nil
	}
	lasts, err := checkStatement(query, s.mode)
	if lasts {
		s.changed.Store(true)
	}
	return s.keepFirst(err)
}

// Close implements driver.Conn. The pool calls it once, after the transaction and its prepared
// statements have ended. The connection is the application's, and stays open.
func (s *session) Close() error {
	close(s.back)
	return nil
}

// wait returns when the pool of the section, which is closed, no longer uses the connection.
func (s *session) wait() {
	if s.lent.Load() {
		<-s.back
	}
}

// Begin implements driver.Conn.
func (s *session) Begin() (driver.Tx, error) {
	return s.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx implements driver.ConnBeginTx.
func (s *session) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := s.conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, s.keepFirst(err)
	}
	s.open.Store(true)
	return &transaction{tx, s}, nil
}

// ExecContext implements driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := s.admit(ctx, query); err != nil {
		return nil, err
	}
	result, err := s.conn.ExecContext(ctx, query, args)
	return result, s.keepFirst(err)
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.admit(ctx, query); err != nil {
		return nil, err
	}
	return s.watch(s.conn.QueryContext(ctx, query, args))
}

// Prepare implements driver.Conn.
func (s *session) Prepare(query string) (driver.Stmt, error) {
	return s.PrepareContext(context.Background(), query)
}

// PrepareContext implements driver.ConnPrepareContext.
func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := s.admit(ctx, query); err != nil {
		return nil, err
	}
	prepared, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, s.keepFirst(err)
	}
	return &statement{prepared, s}, nil
}

// CheckNamedValue implements driver.NamedValueChecker.
func (s *session) CheckNamedValue(value *driver.NamedValue) error { return checkValue(s.conn, value) }

// checkValue asks the driver, if it has an opinion. A value that is refused has not reached the
// server.
func checkValue(of any, value *driver.NamedValue) error {
	if checker, ok := of.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

// A transaction ends when the section does.
type transaction struct {
	driver.Tx
	session *session
}

// Commit implements driver.Tx.
func (t *transaction) Commit() error {
	if !t.session.commits.Load() {
		_ = t.ended(t.Tx.Rollback()) // fn sees it as rolled back
		return asBroken(t.session.keepFirst(errors.New("Commit was called: InTx commits when its function returns nil")))
	}
	t.session.committing.Store(true)
	return t.ended(t.Tx.Commit())
}

// Rollback implements driver.Tx.
func (t *transaction) Rollback() error {
	_ = t.session.keepFirst(errors.New("Rollback was called, or its context has ended"))
	return t.ended(t.Tx.Rollback())
}

// ended records whether the transaction has ended.
func (t *transaction) ended(err error) error {
	t.session.open.Store(err != nil)
	return err
}

// A statement is a prepared one of a section.
type statement struct {
	driver.Stmt
	session *session
}

// ExecContext implements driver.StmtExecContext.
func (p *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := p.session.failure(); err != nil {
		return nil, asBroken(err)
	}
	stmt, ok := p.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, p.session.keepFirst(errNoContext)
	}
	result, err := stmt.ExecContext(ctx, args)
	return result, p.session.keepFirst(err)
}

// QueryContext implements driver.StmtQueryContext.
func (p *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := p.session.failure(); err != nil {
		return nil, asBroken(err)
	}
	stmt, ok := p.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, p.session.keepFirst(errNoContext)
	}
	return p.session.watch(stmt.QueryContext(ctx, args))
}

// CheckNamedValue implements driver.NamedValueChecker.
func (p *statement) CheckNamedValue(value *driver.NamedValue) error { return checkValue(p.Stmt, value) }

var errNoContext = errors.New("the driver's prepared statements take no context")

// rows are the rows of a section: a deadlock can come with any row.
type rows struct {
	driver.Rows
	session *session
}

func (s *session) watch(r driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, s.keepFirst(err)
	}
	return &rows{r, s}, nil
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error { return r.session.keepFirst(r.Rows.Next(dest)) }

// Close implements driver.Rows. It reads the remaining rows, since one of them may be an error.
func (r *rows) Close() error { return r.session.keepFirst(r.Rows.Close()) }

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *rows) HasNextResultSet() bool {
	more, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && more.HasNextResultSet()
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *rows) NextResultSet() error {
	if more, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return r.session.keepFirst(more.NextResultSet())
	}
	return io.EOF
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if typed, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return typed.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if typed, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return typed.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeNullable implements driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if typed, has := r.Rows.(driver.RowsColumnTypeNullable); has {
		return typed.ColumnTypeNullable(i)
	}
	return false, false
}

// ColumnTypePrecisionScale implements driver.RowsColumnTypePrecisionScale.
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if typed, has := r.Rows.(driver.RowsColumnTypePrecisionScale); has {
		return typed.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

// allowed are the first words of statements that a guarded transaction accepts. None of them
// commits. Such a statement may call code that commits (CALL, a stored function): the savepoint
// reveals that at the end.
var allowed = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "DO", "CALL",
	"EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SAVEPOINT", "RELEASE", "("}

// pairs are those that it may begin with if another word follows.
var pairs = map[string][]string{
	"CREATE":   {"TEMPORARY"},
	"DROP":     {"TEMPORARY"},
	"LOAD":     {"DATA", "XML"},
	"ROLLBACK": {"TO", "WORK TO"}, // a savepoint, which cannot be from before Guard
}

// lasting are the words that begin statements whose effect on the MySQL session outlives a
// transaction.
var lasting = []string{"SET", "CALL", "DO", "CREATE", "DROP"}

// checkStatement refuses what ends a transaction, or may hide that it does, in a MySQL session with
// an sql_mode. It reports whether the statement may change the session.
func checkStatement(query, mode string) (lasts bool, err error) {
	tokens := sqltext.TokensIn(strings.TrimRight(query, "; \t\r\n"), mode)
	if strings.Contains(query, "/*!") || strings.Contains(query, "/*M!") {
		return false, refuse("a comment that MySQL executes, /*! ... */,")
	}
	if len(tokens) == 0 {
		return false, refuse("an empty statement")
	}
	if slices.Contains(tokens, ";") {
		return false, refuse("several statements in one text")
	}
	word := strings.ToUpper(tokens[0])
	rest := strings.ToUpper(strings.Join(tokens[1:min(3, len(tokens))], " ")) + " "
	follows := func(second string) bool { return strings.HasPrefix(rest, second+" ") }
	switch {
	case slices.Contains(allowed, word), slices.ContainsFunc(pairs[word], follows):
	case word == "SET" && !follows("DEFAULT") && !slices.ContainsFunc(tokens, unsettable):
	default:
		return false, refuse("a statement that begins with " + word)
	}
	return slices.Contains(lasting, word) || slices.ContainsFunc(tokens, marks), nil
}

// unsettable reports whether SET with a word can commit, or change how the next statement is
// parsed. It ignores case, quotes and the scope before the word. MySQL ignores accents in names of
// variables.
func unsettable(token string) bool {
	if token[0] == '\'' {
		return false
	}
	name := strings.ToUpper(strings.Trim(token, "@`\""))
	return slices.Contains([]string{"AUTOCOMMIT", "PASSWORD", "STATEMENT", "SQL_MODE"}, name) ||
		strings.ContainsFunc(token, func(r rune) bool { return r >= 0x80 })
}

// marks reports whether a word is of a user variable or of a lock by name, which any statement may
// set.
func marks(token string) bool {
	return token[0] == '@' && !strings.HasPrefix(token, "@@") || strings.EqualFold(strings.Trim(token, "`\""), "GET_LOCK")
}

func refuse(what string) error {
	return fmt.Errorf("%s is refused in a guarded transaction, which must not commit before its end: run it elsewhere", what)
}
