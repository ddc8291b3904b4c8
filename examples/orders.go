package examples

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

// OrdersTable creates the table of orders. The UNIQUE index makes a repeated request find the order
// of the first one.
const OrdersTable = `CREATE TABLE orders (
  id BIGINT AUTO_INCREMENT PRIMARY KEY,
  customer_id BIGINT NOT NULL,
  request_key VARBINARY(64) NOT NULL,
  request_hash BINARY(64) NOT NULL, -- SHA-256 in hex
  response BLOB, -- JSON would change its bytes
  product_id BIGINT NOT NULL,
  quantity INT NOT NULL,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  UNIQUE (customer_id, request_key),
  INDEX (created_at)
)`

// ClearResponses removes responses that are 30 to 40 days old, to save space. Run it daily, until
// it changes no row. A retry of such an order then gets 410. Keep the row: a key is valid as long
// as its order exists.
const ClearResponses = `UPDATE orders SET response = NULL
WHERE created_at BETWEEN NOW() - INTERVAL 40 DAY AND NOW() - INTERVAL 30 DAY AND response IS NOT NULL
ORDER BY created_at LIMIT 1000`

// A refusal is an answer that stores nothing.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

var (
	errKey     = refusal{http.StatusBadRequest, "Idempotency-Key must have 16 to 64 letters, digits, - or _, for example a UUID"}
	errLogin   = refusal{http.StatusUnauthorized, "log in, then send the same request again"}
	errOrder   = refusal{http.StatusBadRequest, "the order must have a product and a quantity from 1 to 2147483647"}
	errSoldOut = refusal{http.StatusConflict, "sold out, or no such product"}
	errCleared = refusal{http.StatusGone, "this order was created long ago"}
	errReused  = refusal{http.StatusUnprocessableEntity, "Idempotency-Key was used for another order: choose a new one"}
)

var orderKey = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)

// kept is how long Redis has a copy of a response, which never changes.
var kept = cache.MustPolicy(cache.Options{TTL: 24 * time.Hour})

// An orderResponse is the response to the request with a hash.
type orderResponse struct {
	Hash string
	Body []byte
}

// CreateOrder creates one order per customer and idempotency key, and returns the same bytes to all
// callers. A client that gets no answer repeats its request, and would otherwise create a second
// order.
//
//  1. Return the copy of the response in Redis, if it can be read.
//  2. In one transaction, insert the order first, change the stock, store the response, and enqueue
//     the invalidation.
//  3. If the INSERT reports a duplicate (error 1062), read the stored response.
//  4. Store a copy in Redis for a day, if possible.
//
// TestOrderSurvivesCrashes kills the process before and after each command. Two clients then repeat
// the request in parallel, and get the same bytes and one order.
//
// In production:
//   - The client creates a UUID when the form opens, not per attempt.
//   - Give responses a separate Cache with the prefix "shop:". If Redis refuses them, other Caches
//     stay healthy. After each run of the line of "unstale acl reader", also run
//     ACL SETUSER shop ~shop:order-response:*
//   - Give a payment provider the same key. Insert mails to send as rows.
//   - MySQL keeps the row lock of a machine that fails until the connection times out: set
//     wait_timeout=60 in the DSN, and SetConnMaxIdleTime below that.
func CreateOrder(ctx context.Context, responses *cache.Cache, db *sql.DB, customer int64, key string, request []byte) ([]byte, error) {
	if !orderKey.MatchString(key) {
		return nil, errKey
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(request))
	name := fmt.Sprint("order-response:", customer, ":", key)
	response, err := cache.Get[orderResponse](ctx, responses, name)
	if err != nil { // of Redis, too: MySQL decides
		response, err = createOrder(ctx, db, customer, key, hash, request)
		if err != nil {
			return nil, err
		}
		if lease, err := responses.Lease(ctx, name, kept); err == nil {
			_ = cache.Set(ctx, lease, response) // without the copy, the next call asks MySQL
		}
	}
	if response.Hash != hash {
		return nil, errReused
	}
	return response.Body, nil
}

// createOrder creates the order, or reads the response to the request that has created it.
func createOrder(ctx context.Context, db *sql.DB, customer int64, key, hash string, request []byte) (response orderResponse, err error) {
	var order struct {
		Product  int64
		Quantity int32 // more does not fit into the column
	}
	if err := json.Unmarshal(request, &order); err != nil || order.Product <= 0 || order.Quantity <= 0 {
		return response, errOrder
	}
	err = outbox.InTx(ctx, db, func(tx *sql.Tx) error {
		// first: another transaction with the key waits here until this one has ended
		inserted, err := tx.ExecContext(ctx, "INSERT INTO orders (customer_id, request_key, request_hash, product_id, quantity) VALUES (?, ?, ?, ?, ?)",
			customer, key, hash, order.Product, order.Quantity)
		if err != nil {
			return err
		}
		id, err := inserted.LastInsertId()
		if err != nil {
			return err
		}
		taken, err := tx.ExecContext(ctx, "UPDATE products SET stock = stock - ? WHERE id = ? AND stock >= ?", order.Quantity, order.Product, order.Quantity)
		if err != nil {
			return err
		}
		if n, err := taken.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errSoldOut)
		}
		response = orderResponse{Hash: hash, Body: fmt.Appendf(nil, `{"order": %d}`, id)}
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET response = ? WHERE id = ?", response.Body, id); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(order.Product, shopcache.ProductParams{}))
	})
	var duplicate *mysql.MySQLError
	if !errors.As(err, &duplicate) || duplicate.Number != 1062 {
		return response, err
	}
	found := db.QueryRowContext(ctx, "SELECT request_hash, response FROM orders WHERE customer_id = ? AND request_key = ?", customer, key).
		Scan(&response.Hash, &response.Body)
	switch {
	case errors.Is(found, sql.ErrNoRows): // another index is UNIQUE, too
		return response, err
	case found == nil && response.Hash != hash: // cleared or not
		return response, errReused
	case found == nil && response.Body == nil:
		return response, errCleared
	}
	return response, found
}

// OrderHandler answers requests to create an order. customer returns the id of the account
// of the request's session, or false if there is none. Answers:
//   - The same key and bytes again: 201 with the same response. If the first request still runs,
//     the INSERT waits. If the first request rolls back, this one creates the order.
//   - The same key with other bytes: 422.
//   - No key, not 16 to 64 letters, digits, - or _, or an invalid order: 400.
//   - No valid session: 401.
//   - A product that is sold out or does not exist: 409. Nothing is stored, so the key stays free.
//   - 503, or no answer: repeat the request, because the order may exist.
func OrderHandler(responses *cache.Cache, db *sql.DB, customer func(*http.Request) (int64, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		account, signedIn := customer(r)
		if !signedIn {
			http.Error(w, errLogin.text, errLogin.status)
			return
		}
		request, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// it may wait for another request with the key
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		response, err := CreateOrder(ctx, responses, db, account, r.Header.Get("Idempotency-Key"), request)
		var refused refusal
		switch {
		case errors.As(err, &refused):
			http.Error(w, refused.text, refused.status)
		case err != nil: // the order may exist
			http.Error(w, "send the same request again", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(response)
		}
	}
}
