package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/outbox"
)

// The row is inserted in the transaction of the change, and shares its fate.
func ExampleEnqueue() {
	changePrice := func(ctx context.Context, db *sql.DB, id string, cents int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // no effect after Commit
		if _, err := tx.ExecContext(ctx, "UPDATE products SET price_cents = ? WHERE id = ?", cents, id); err != nil {
			return err
		}
		if err := outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: id}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = changePrice
}

// A *sqlx.Tx is a transaction too.
func ExampleEnqueue_sqlx() {
	endCoupon := func(ctx context.Context, tx *sqlx.Tx, code string) error {
		if _, err := tx.NamedExecContext(ctx, "DELETE FROM coupons WHERE code = :code", map[string]any{"code": code}); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "coupon", ID: code})
	}
	_ = endCoupon
}

// A move passes the old and the new category: a lookup by the worker would see the new one only.
func ExampleInTx() {
	move := func(ctx context.Context, db *sql.DB, id string, from, to int64) error {
		return outbox.InTx(ctx, db, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx,
				"UPDATE product_categories SET category_id = ? WHERE product_id = ? AND category_id = ?", to, id, from)
			if err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Invalidation{
				Entity: "product", ID: id,
				Params: map[string]any{"category_id": []int64{from, to}},
			})
		})
	}
	_ = move
}

// Validate checks what Enqueue would refuse, before there is a transaction.
func ExampleInvalidation_Validate() {
	for _, inv := range []outbox.Invalidation{
		{Entity: "product", ID: "42", Params: map[string]any{"category_id": []int{7, 9}}},
		{Entity: "product"},
		{Entity: "product", ID: "42", Params: map[string]any{"category": struct{ ID int }{7}}},
		{Entity: "product", ID: "42", RawParams: json.RawMessage(`{"category_id": 7, "category_id": 9}`)},
	} {
		fmt.Println(inv.Validate())
	}
	// Output:
	// <nil>
	// invalidation 0: id: is empty; it is required
	// invalidation 0: params.category: a struct { ID int } is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those
	// invalidation 0: params.category_id: the name is given twice
}

// The error names the invalidation and its field.
func ExampleFieldError() {
	err := outbox.Invalidation{Entity: "coupon"}.Validate()
	var field *outbox.FieldError
	if errors.As(err, &field) {
		fmt.Println(field.Field)
	}
	// Output:
	// id
}

// Read your own writes: the response of the writer has a token, which the browser sends with its
// next requests, to any process.
func ExampleInTxToken() {
	rename := func(w http.ResponseWriter, r *http.Request, db *sql.DB) error {
		token, err := outbox.InTxToken(r.Context(), db, func(tx *sql.Tx, writes *outbox.Writes) error {
			if _, err := tx.ExecContext(r.Context(), "UPDATE products SET name = ? WHERE id = 42", r.FormValue("name")); err != nil {
				return err
			}
			return writes.Enqueue(r.Context(), tx, outbox.Invalidation{Entity: "product", ID: "42"})
		})
		if err != nil {
			return err
		}
		// an earlier write, whose keys may not be gone yet
		if cookie, err := r.Cookie("written"); err == nil {
			if earlier, err := outbox.ParseToken(cookie.Value); err == nil {
				if both, err := token.Join(earlier); err == nil {
					token = both
				}
			}
		}
		http.SetCookie(w, &http.Cookie{Name: "written", Value: token.String(), HttpOnly: true, MaxAge: int(outbox.TokenLifetime.Seconds())})
		return nil
	}
	_ = rename
}

// A job continues only when no reader can get an old value from Redis.
func ExampleWait() {
	publish := func(ctx context.Context, db *sql.DB, token outbox.Token) error {
		// without a worker it would wait forever
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return outbox.Wait(ctx, db, token)
	}
	_ = publish
}

// The text comes from a browser, which may send anything.
func ExampleParseToken() {
	for _, text := range []string{
		"1.9f86d081884c7d659a2feaa0c55ad015.t6z3k1.2s-3_3f", // rows 100 to 102 and 123
		"1.9f86d081884c7d659a2feaa0c55ad015.t6z3k1.' OR 1",
	} {
		token, err := outbox.ParseToken(text)
		fmt.Println(token, err)
	}
	// Output:
	// 1.9f86d081884c7d659a2feaa0c55ad015.t6z3k1.2s-3_3f <nil>
	//  parse token: the rows "' OR 1": "' OR 1" is not a number from 1 on in base 36
}

// A service that makes spans says once how to find the trace of a request, and names it nowhere
// else.
func ExampleSetTracer() {
	// with OpenTelemetry: the traceparent of the span, as docs/observability.md shows
	type requestID struct{}
	outbox.SetTracer(func(ctx context.Context) string {
		id, _ := ctx.Value(requestID{}).(string)
		return id
	})
	_ = func(ctx context.Context, tx *sql.Tx) error { // its row has the request's ID
		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: "42"})
	}
}
