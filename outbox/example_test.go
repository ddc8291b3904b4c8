package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

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

// What Enqueue would refuse can be known before there is a transaction.
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
