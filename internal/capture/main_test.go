package capture_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A shop is a database with an outbox.
type shop struct {
	t testing.TB
	*testenv.Database
}

func newShop(t testing.TB, statements ...string) *shop {
	t.Helper()
	return newShopOn(t, testenv.MySQL(t), statements...)
}

func newShopOn(t testing.TB, on *testenv.Database, statements ...string) *shop {
	t.Helper()
	s := &shop{t, on}
	schematest.Up(t, s.DB)
	s.exec(statements...)
	return s
}

func (s *shop) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.DB.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// capturer returns a Capturer of a map's section capture.
func (s *shop) capturer(section string) *capture.Capturer {
	s.t.Helper()
	src := `version: 1
entities:
  product: {params: [category_id, value], keys: ["p:{id}"], patterns: ["category:{category_id}:{value}:*"]}
  category: {keys: ["category:{id}"]}
capture:
` + section
	m, err := invalidation.Parse("map.yaml", []byte(src), func(string) (string, bool) { return "", false })
	if err != nil {
		s.t.Fatal(err)
	}
	return &capture.Capturer{DB: s.DB, Captures: m.Captures(), Notify: func(notice string) { s.t.Log(notice) }}
}

// apply creates the triggers, and returns the statements.
func (s *shop) apply(section string) (done []string) {
	s.t.Helper()
	return s.applyBy(s.capturer(section))
}

func (s *shop) applyBy(by *capture.Capturer) (done []string) {
	s.t.Helper()
	err := by.Apply(s.t.Context(), func(c capture.Change) {
		verb := "drop"
		if c.Create != "" {
			verb = "create"
		}
		done = append(done, fmt.Sprintf("%s %s on %s: %s", verb, c.Event(), c.Table(), c.State))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

// states returns the states of the plan, as "state event on table", sorted.
func (s *shop) states(section string) (states []string) {
	s.t.Helper()
	changes, err := s.capturer(section).Plan(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range changes {
		states = append(states, fmt.Sprintf("%s: %s on %s", c.State, c.Event(), c.Table()))
	}
	slices.Sort(states)
	return states
}

// rows takes all rows of the outbox, as "entity id params".
func (s *shop) rows() (all []string) {
	s.t.Helper()
	return s.take("CONCAT_WS(' ', entity, entity_id, params)", "cache_outbox")
}

// take removes all rows of a table of the outbox, and returns each as a text.
func (s *shop) take(text, table string) (all []string) {
	s.t.Helper()
	rows, err := s.DB.QueryContext(s.t.Context(), "SELECT "+text+" FROM "+table+" ORDER BY id")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	s.exec("DELETE FROM " + table)
	return all
}

// conn returns a session that lasts until the test ends.
func (s *shop) conn() *sql.Conn {
	s.t.Helper()
	conn, err := s.DB.Conn(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// want runs a statement and compares the rows that it leaves.
func (s *shop) want(statement string, rows ...string) {
	s.t.Helper()
	s.exec(statement)
	if got := s.rows(); !slices.Equal(got, rows) {
		s.t.Errorf("%s: got rows %q, wanted %q", statement, got, rows)
	}
}
