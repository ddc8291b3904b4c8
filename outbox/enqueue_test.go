package outbox_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// A *sql.DB is refused by the compiler, transactions of both libraries are accepted.
var (
	_ outbox.Tx       = (*sql.Tx)(nil)
	_ outbox.Tx       = (*sqlx.Tx)(nil)
	_ outbox.Beginner = (*sql.DB)(nil)
	_ outbox.Beginner = (*sqlx.DB)(nil)
	_ outbox.Pool     = (*sql.DB)(nil)
	_ outbox.Pool     = (*sqlx.DB)(nil)
)

func TestEnqueueRefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	tx := reflect.TypeFor[outbox.Tx]()
	for _, pool := range []any{(*sql.DB)(nil), (*sql.Conn)(nil), (*sqlx.DB)(nil)} {
		if reflect.TypeOf(pool).Implements(tx) {
			t.Errorf("%T passes for a transaction", pool)
		}
	}
}

type (
	productID  int64
	categories []productID
)

// The values of Params reach the table as JSON that keeps them exactly.
func TestEnqueueWritesParams(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	id, name := productID(7), "x"
	rows := []outbox.Invalidation{
		{Entity: "product", ID: "1", Params: map[string]any{
			"text": "a\"b\\\n<é>\u2028", "int": int8(-3), "uint": uint64(math.MaxUint64), "float": 0.1, "whole": 1e21, "flag": true,
			"typed": id, "pointer": &name, "number": json.Number("18446744073709551616"), "form": json.Number("1.10"),
			"list": []string{"a", "b"}, "typed_list": categories{7, 9}, "any": []any{1, "x", json.Number("2")}, "empty": []int{}, "array": [2]bool{true, false},
		}},
		{Entity: "product", ID: "2", RawParams: json.RawMessage(`{ "a" : 1.0 }`)},
		{Entity: "product", ID: "3"},
	}
	enqueue(t, env.DB, rows...)
	want := []string{
		`{"any":[1,"x",2],"array":[true,false],"empty":[],"flag":true,"float":0.1,"form":1.10,"int":-3,"list":["a","b"],` +
			`"number":18446744073709551616,"pointer":"x","text":"a\"b\\\n\u003cé\u003e\u2028","typed":7,"typed_list":[7,9],` +
			`"uint":18446744073709551615,"whole":1000000000000000000000}`,
		`{ "a" : 1.0 }`, "NULL",
	}
	for i, w := range want {
		var got string
		if err := env.DB.QueryRow("SELECT COALESCE(params, 'NULL') FROM cache_outbox WHERE id = ?", i+1).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != w {
			t.Errorf("row %d: %s\nwanted %s", i+1, got, w)
		}
		if text, err := rows[i].ParamsJSON(); err != nil || cmp.Or(string(text), "NULL") != w {
			t.Errorf("row %d: %s, %v\nwanted %s", i+1, text, err, w)
		}
	}
	if text, err := (outbox.Invalidation{Entity: "product"}).ParamsJSON(); err == nil {
		t.Errorf("without an ID: %s", text)
	}
}

// Nothing is written unless every row is valid; the error names the place and the fix.
func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	ok := outbox.Invalidation{Entity: "product", ID: "1"}
	with := func(change func(*outbox.Invalidation)) outbox.Invalidation { inv := ok; change(&inv); return inv }
	param := func(v any) outbox.Invalidation {
		return with(func(i *outbox.Invalidation) { i.Params = map[string]any{"p": v} })
	}
	raw := func(s string) outbox.Invalidation {
		return with(func(i *outbox.Invalidation) { i.RawParams = json.RawMessage(s) })
	}
	cases := map[string]outbox.Invalidation{
		"entity: is empty; it is required":                                         {ID: "1"},
		"id: is empty; it is required":                                             {Entity: "product"},
		"entity: 65 characters are more than 64":                                   {Entity: strings.Repeat("é", 65), ID: "1"},
		"id: 256 characters are more than 255":                                     {Entity: "product", ID: strings.Repeat("é", 256)},
		`id: "a\xff" is not valid UTF-8`:                                           {Entity: "product", ID: "a\xff"},
		"trace: 129 characters are more than 128":                                  with(func(i *outbox.Invalidation) { i.Trace = strings.Repeat("t", 129) }),
		"not_before: year 12000 is outside 1970 to 9999":                           with(func(i *outbox.Invalidation) { i.NotBefore = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"params: 65537 bytes of JSON are more than 65536; pass ids, not documents": param(strings.Repeat("x", 64<<10-7)),
		"params: a parameter has an empty name":                                    with(func(i *outbox.Invalidation) { i.Params = map[string]any{"": 1} }),
		"params.p: is nil; leave it out":                                           param(nil),
		"params.p: NaN is not a number that JSON can represent":                    param(math.NaN()),
		`params.p: "0x1" is not a JSON number`:                                     param(json.Number("0x1")),
		`params.p: "a\xff" is not valid UTF-8`:                                     param("a\xff"),
		"params.p: element 1: a []int is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those": param([]any{1, []int{2}}),
		"params.p: a map[string]int is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those":   param(map[string]int{}),
		"params.p: a time.Time is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those":        param(time.Time{}),
		"params.p: a []uint8 is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those":          param([]byte("x")),
		"params: Params and RawParams are both set; set one": with(func(i *outbox.Invalidation) {
			i.Params, i.RawParams = map[string]any{"p": 1}, json.RawMessage(`{}`)
		}),
	}
	for want, inv := range cases {
		checkRefused(t, env.DB, "invalidation 1: "+want, ok, inv)
	}
	for _, text := range []string{"", `{"q":1}`} {
		inv := raw(text)
		inv.Required = []string{"p"}
		checkRefused(t, env.DB, "invalidation 1: params.p: is missing; the map requires it", ok, inv)
		for _, given := range []string{`{"p":[7]}`, `{"p":[]}`} {
			inv.RawParams = json.RawMessage(given)
			if err := inv.Validate(); err != nil {
				t.Error(err)
			}
		}
	}
	for bad, want := range map[string]string{
		`[1]`:              "params: the parameters must be a JSON object of scalars and lists of scalars",
		`{"a":1,"a":2}`:    "params.a: the name is given twice",
		`{"a":{"b":1}}`:    "params.a: an object is neither a scalar nor a list of scalars",
		`{"a":[[1]]}`:      "params.a: a list within a list is not a scalar",
		`{"a":"\ud800"}`:   `params.a: decode value: a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"a":1} x`:        "params: something follows the JSON object",
		`{`:                "params: the JSON ends too early",
		"{\"a\":\"\xff\"}": "params: the parameters are not valid UTF-8",
	} {
		checkRefused(t, env.DB, "invalidation 1: "+want, ok, raw(bad))
	}
	if n := count(t, env.DB, "cache_outbox"); n != 0 {
		t.Errorf("%d rows written", n)
	}
}

func checkRefused(t *testing.T, db *sql.DB, want string, invs ...outbox.Invalidation) {
	t.Helper()
	err := outbox.InTx(t.Context(), db, func(tx *sql.Tx) error { return outbox.Enqueue(t.Context(), tx, invs...) })
	var field *outbox.FieldError
	if !errors.As(err, &field) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if again := invs[len(invs)-1].Validate(); again == nil {
		t.Errorf("Validate accepts %+v", invs[len(invs)-1])
	}
}

// Many rows are inserted with few statements, and all of them arrive.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	invs := products(1201)
	for i := range 40 {
		invs[i].Params = map[string]any{"p": strings.Repeat("x", 60<<10)}
	}
	var before, after int
	questions := func(into *int) {
		var name string
		if err := env.DB.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_insert'").Scan(&name, into); err != nil {
			t.Fatal(err)
		}
	}
	questions(&before)
	enqueue(t, env.DB, invs...)
	questions(&after)
	if n := count(t, env.DB, "cache_outbox"); n != len(invs) {
		t.Errorf("%d rows", n)
	}
	if after < before {
		t.Errorf("insert counter went from %d to %d", before, after)
	}
}

// Commit makes the rows, rollback does not, and a panic rolls back.
func TestInTx(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	broken := errors.New("broken")
	err := outbox.InTx(t.Context(), env.DB, func(tx *sql.Tx) error {
		return errors.Join(outbox.Enqueue(t.Context(), tx, products(1)...), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = outbox.InTx(t.Context(), env.DB, func(tx *sql.Tx) error {
			if err := outbox.Enqueue(t.Context(), tx, products(1)...); err != nil {
				return err
			}
			panic("broken")
		})
	}()
	if n := count(t, env.DB, "cache_outbox"); n != 0 {
		t.Errorf("%d rows after rollbacks", n)
	}
}

// A transaction with a real deadlock is repeated until it succeeds.
func TestInTxRetriesADeadlock(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	for _, stmt := range []string{"CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO pair VALUES (1, 0), (2, 0)"} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	both := make(chan struct{}, 2) // each sends when it has its first lock
	ready := make(chan struct{})
	go func() { <-both; <-both; close(ready) }()
	runs := make(chan int, 2)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		go func() {
			n := 0
			err := outbox.InTx(context.Background(), env.DB, func(tx *sql.Tx) error {
				n++
				for i, id := range order {
					if _, err := tx.Exec("UPDATE pair SET n = n + 1 WHERE id = ?", id); err != nil {
						return fmt.Errorf("update: %w", err)
					}
					if i == 0 && n == 1 {
						both <- struct{}{}
						<-ready
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			runs <- n
		}()
	}
	if total := <-runs + <-runs; total < 3 {
		t.Errorf("%d runs: no deadlock came about", total)
	}
	var sum int
	if err := env.DB.QueryRow("SELECT SUM(n) FROM pair").Scan(&sum); err != nil || sum != 4 {
		t.Errorf("sum %d, %v", sum, err)
	}
}

// With innodb_snapshot_isolation, MariaDB refuses to lock a row that changed after the snapshot.
func TestInTxRetriesAChangedRecord(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	tries := 0
	err := outbox.InTx(t.Context(), env.DB, func(*sql.Tx) error {
		if tries++; tries == 1 {
			return fmt.Errorf("update: %w", &mysql.MySQLError{Number: 1020})
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
}

// An error of COMMIT is returned to the caller: fn is not repeated, since the transaction may have
// been committed. Here the commit waits too long for a backup under a global lock.
func TestInTxDoesNotRepeatACommit(t *testing.T) {
	t.Parallel()
	env := testenv.OwnDatabase(t)
	schematest.Up(t, env.DB)
	application, err := sql.Open("mysql", env.DSN+"&lock_wait_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer application.Close()
	backup, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Close()
	runs := 0
	err = outbox.InTx(t.Context(), application, func(tx *sql.Tx) error {
		runs++
		if err := outbox.Enqueue(t.Context(), tx, products(1)...); err != nil {
			return err
		}
		_, err := backup.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
		return err
	})
	if runs != 1 || !errors.Is(err, outbox.ErrCommit) || !strings.HasPrefix(err.Error(), "commit transaction: Error 1205") {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// Scheduled rows wait in cache_outbox_delayed until the moment that was given, in UTC.
func TestEnqueueNotBefore(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	at := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.FixedZone("", 3*3600))
	enqueue(t, env.DB, outbox.Invalidation{Entity: "coupon", ID: "X", NotBefore: at})
	var due time.Time
	if err := env.DB.QueryRow("SELECT due_at FROM cache_outbox_delayed").Scan(&due); err != nil || !due.Equal(at) {
		t.Errorf("due %s, %v", due, err)
	}
}

// The contract of plain SQL: a row without parameters needs two columns, and MySQL refuses params
// that are not JSON.
func TestPlainSQL(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '7')"); err != nil {
		t.Error(err)
	}
	_, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', '7', '{oops')")
	var my *mysql.MySQLError
	if !errors.As(err, &my) || !strings.Contains(my.Message, "cache_outbox_params_is_json") {
		t.Errorf("got %v", err)
	}
}
