package capture_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/testenv"
)

// account creates a locked account for the shop, with privileges such as "INSERT ON cache_outbox".
func (s *shop) account(rights ...string) capture.Account {
	s.t.Helper()
	a := capture.Account{User: s.Name, Host: "localhost"}
	s.exec("CREATE USER " + a.String() + " IDENTIFIED BY 'secret' ACCOUNT LOCK")
	s.t.Cleanup(func() { s.DB.Exec("DROP USER " + a.String()) }) // the test's context has ended
	s.grant(a, rights...)
	return a
}

func (s *shop) grant(a capture.Account, rights ...string) {
	s.t.Helper()
	for _, right := range rights {
		s.exec("GRANT " + right + " TO " + a.String())
	}
}

// A definer that lacks a privilege would make every write fail. The error comes before the first
// trigger is created, with the fix, and the fix suffices.
func TestDefinerWithoutRights(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	definer := s.account("SELECT (id) ON products")
	c := s.capturer(productCapture)
	c.Definer = definer
	err := c.Apply(t.Context(), func(capture.Change) { t.Error("a trigger was made") })
	if err == nil {
		t.Fatal("applied")
	}
	cures := 0
	for line := range strings.Lines(err.Error()) {
		if cure, ok := strings.CutPrefix(line, "  GRANT "); ok {
			cures++
			s.exec("GRANT " + strings.TrimSuffix(strings.TrimSpace(cure), ";"))
		}
	}
	if cures != 2 || !strings.Contains(err.Error(), "GRANT INSERT (entity, entity_id, params) ON") || !strings.Contains(err.Error(), "SELECT, TRIGGER ON") {
		t.Errorf("%v", err)
	}
	if err := c.Apply(t.Context(), func(capture.Change) {}); err != nil {
		t.Fatal(err)
	}
	s.want("INSERT INTO products (id, category_id) VALUES (1, 7)", `product 1 {"category_id": ["7"]}`)
	s.want("UPDATE products SET name = 'x'", `product 1 {"category_id": ["7", "7"]}`)

	// Another definer is another trigger.
	changes, err := s.capturer(productCapture).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if change.State != capture.WrongDefiner {
			t.Errorf("%s: %s", change.Event(), change.State)
		}
	}
	s.apply(productCapture)
}

// A definer that may insert into a whole table of the outbox may choose IDs. With one that may insert
// by column there is no notice, and writes succeed.
func TestDefinerThatMayChooseIDs(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	definer := s.account("SELECT, TRIGGER ON products", "INSERT ON cache_outbox", "INSERT ON cache_outbox_dead")
	var notices []string
	c := s.capturer(strings.Replace(productCapture, "}}", "}, on_error: skip}", 1))
	c.Definer, c.Notify = definer, func(notice string) { notices = append(notices, notice) }
	s.applyBy(c)
	if len(notices) != 2 {
		t.Fatalf("notices %q, wanted one for each table", notices)
	}
	for i, table := range []string{"cache_outbox", "cache_outbox_dead"} {
		if !strings.Contains(notices[i], "may choose the ID of a row of "+table+"; ") {
			t.Errorf("notice %q is not about %s", notices[i], table)
		}
	}
	for table, columns := range map[string]string{"cache_outbox": "entity, entity_id, params, trace",
		"cache_outbox_dead": "entity, entity_id, params, created_at, first_id, reason, error, map_version"} {
		s.exec("REVOKE INSERT ON "+table+" FROM "+definer.String(), "GRANT INSERT ("+columns+") ON "+table+" TO "+definer.String())
	}
	notices = nil
	if _, err := c.Examine(t.Context()); err != nil || len(notices) > 0 {
		t.Errorf("notices %q, %v", notices, err)
	}
	s.want("INSERT INTO products (id, category_id) VALUES (1, 7)", `product 1 {"category_id": ["7"]}`)
}

// An account that does not exist is refused, and so is a text that is not an account.
func TestNoSuchDefiner(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	c := s.capturer(productCapture)
	c.Definer = capture.Account{User: "no'body", Host: "local`host"}
	if err := c.Apply(t.Context(), func(capture.Change) {}); err == nil || !strings.Contains(err.Error(), `'no''body'@'local`+"`"+`host'`) {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]capture.Account{
		"a@b": {"a", "b"}, "'a'@'%'": {"a", "%"}, "a": {"a", "%"}, "a@b@c": {"a@b", "c"}, "`a`@`b`": {"a", "b"},
	} {
		if got, err := capture.ParseAccount(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@b", "a@", "a\n@b"} {
		if got, err := capture.ParseAccount(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// An account that may not see triggers gets an error: the server shows none to it.
func TestWithoutTheRightToSee(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	s.apply(productCapture)
	blind := s.account("SELECT ON products", "SELECT, INSERT ON cache_outbox", "SELECT ON cache_outbox_version")
	c := s.capturer(productCapture)
	c.DB = s.as(blind)
	changes, err := c.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if change.State != capture.Unknown {
			t.Errorf("%s: %s", change.Event(), change.State)
		}
	}
	if err := c.Apply(t.Context(), func(capture.Change) {}); err == nil || !strings.Contains(err.Error(), "GRANT TRIGGER ON") {
		t.Errorf("apply: %v", err)
	}
	s.exec("CREATE FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN 2 * x")
	hidden := s.capturer("  products: {entity: product, id: \"twice({row}.id)\"}\n")
	hidden.DB = c.DB
	if _, err := hidden.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "execute command denied") {
		t.Errorf("a function that the account may not execute: %v", err)
	}
	s.grant(blind, "TRIGGER ON products")
	c.Definer = capture.Account{User: "root", Host: "localhost"}
	// on the server of all tests, whose other accounts have SUPER
	s.exec("SET GLOBAL log_bin_trust_function_creators = 1")
	s.exec("DROP TRIGGER " + triggerOf(t, s, "AFTER UPDATE"))
	if err := c.Apply(t.Context(), func(capture.Change) {}); err == nil ||
		!strings.Contains(err.Error(), "SET_ANY_DEFINER") {
		t.Errorf("apply for another: %v", err)
	}
}

// With a binary log, an account needs more than TRIGGER: the error has the fix, which works.
func TestBesideABinaryLog(t *testing.T) {
	t.Parallel()
	s := newShopOn(t, testenv.OwnDatabase(t, "--log-bin=binlog", "--server-id=1"), products)
	own := s.account("SELECT, TRIGGER ON products", "SELECT, INSERT ON cache_outbox", "SELECT ON cache_outbox_version")
	c := s.capturer(productCapture)
	c.DB = s.as(own)
	const cure = "SET GLOBAL log_bin_trust_function_creators = 1"
	if _, err := c.Rehearse(t.Context()); err == nil || !strings.Contains(err.Error(), "(1419); "+cure) {
		t.Errorf("a rehearsal: %v", err)
	}
	if err := c.Apply(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "(1419); "+cure) {
		t.Errorf("apply: %v", err)
	}
	s.grant(own, "SUPER ON *.*")
	c.DB = s.as(own)
	if _, err := c.Rehearse(t.Context()); err != nil {
		t.Errorf("a rehearsal with SUPER: %v", err)
	}
	s.exec("REVOKE SUPER ON *.* FROM " + own.String())
	c.DB = s.as(own)
	s.exec("SET GLOBAL log_bin_trust_function_creators = 1")
	s.applyBy(c)
	s.want("INSERT INTO products (id, category_id) VALUES (1, 7)", `product 1 {"category_id": ["7"]}`)
}

// as logs in with another account.
func (s *shop) as(a capture.Account) *sql.DB {
	s.t.Helper()
	s.exec("ALTER USER " + a.String() + " ACCOUNT UNLOCK")
	config, err := mysql.ParseDSN(s.DSN)
	if err != nil {
		s.t.Fatal(err)
	}
	config.User, config.Passwd = a.User, "secret"
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// triggerOf returns the name of the trigger on an event.
func triggerOf(t *testing.T, s *shop, event string) string {
	t.Helper()
	all, err := capture.ReadExisting(t.Context(), s.DB)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Timing+" "+e.Event == event {
			return e.Name
		}
	}
	t.Fatalf("no trigger %s among %v", event, all)
	return ""
}
