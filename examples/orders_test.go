package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// An orderWorld has the servers of several orderShops, and a product with a stock of 1000.
type orderWorld struct {
	*testing.T
	dsn, url string
	db       *sql.DB
}

func newOrderWorld(t *testing.T) *orderWorld {
	t.Helper()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, OrdersTable, "CREATE TABLE products (id BIGINT PRIMARY KEY, stock INT NOT NULL)", "INSERT INTO products VALUES (42, 1000)")
	return &orderWorld{t, env.DSN, testenv.Redis(t).URL, env.DB}
}

// An orderShop is one process of the shop, with its own connections. Its customers are in a header.
type orderShop struct {
	client    *redis.Client
	responses *cache.Cache
	db        *sql.DB
	handler   http.Handler
}

// openOrderShop calls step before and after each command to MySQL and Redis.
func openOrderShop(dsn, url string, step func(string) error) (*orderShop, error) {
	db, err := openStepping(dsn, step)
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled, options.DialerRetries = true, 1
	s := &orderShop{client: redis.NewClient(options), db: db}
	s.client.AddHook(stepHook{step})
	s.responses, err = cache.New(cache.Config{Redis: s.client, Prefix: "shop:", Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	s.handler = OrderHandler(s.responses, s.db, func(r *http.Request) (customer int64, signedIn bool) {
		_, err := fmt.Sscan(r.Header.Get("Customer"), &customer)
		return customer, err == nil && customer > 0
	})
	return s, err
}

func (s *orderShop) close() error {
	return errors.Join(s.responses.Close(), s.client.Close(), s.db.Close())
}

func (o *orderWorld) open(url string, step func(string) error) *orderShop {
	o.Helper()
	s, err := openOrderShop(o.dsn, url, step)
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() {
		if err := s.close(); err != nil {
			o.Error(err)
		}
	})
	return s
}

const twoOf42 = `{"product": 42, "quantity": 2}`

// order returns the status and the body of the answer.
func (s *orderShop) order(ctx context.Context, customer int, key, body string) string {
	r, w := httptest.NewRequestWithContext(ctx, "POST", "/orders", strings.NewReader(body)), httptest.NewRecorder()
	r.Header.Set("Customer", fmt.Sprint(customer))
	r.Header.Set("Idempotency-Key", key)
	s.handler.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
}

// created returns the answer that created the order of a customer by key, and checks the number of
// all orders, of rows of the outbox, and of pieces taken.
func (o *orderWorld) created(customer int, key string, orders int) (answer string) {
	o.Helper()
	var all, rows, taken int
	err := o.db.QueryRowContext(o.Context(), `SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM cache_outbox), (SELECT 1000 - stock FROM products),
COALESCE((SELECT CONCAT('201 {"order": ', id, '}') FROM orders WHERE customer_id = ? AND request_key = ?), 'none')`, customer, key).Scan(&all, &rows, &taken, &answer)
	if err != nil {
		o.Fatal(err)
	}
	if all != orders || rows != orders || taken != 2*orders {
		o.Errorf("there are %d orders, %d rows, %d pieces taken; wanted %d orders", all, rows, taken, orders)
	}
	return answer
}

func noStep(string) error { return nil }

// The answers of OrderHandler. The copy in Redis answers without MySQL, and MySQL without
// Redis.
func TestOrders(t *testing.T) {
	t.Parallel()
	o := newOrderWorld(t)
	s, away, copies := o.open(o.url, noStep), o.open("redis://127.0.0.1:1", noStep), o.open(o.url, noStep)
	if err := copies.db.Close(); err != nil {
		t.Fatal(err)
	}
	want := func(s *orderShop, customer int, key, body, want string) {
		t.Helper()
		if got := s.order(t.Context(), customer, key, body); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("customer %d, key %q, %s: got %q, wanted %q", customer, key, body, got, want)
		}
	}
	const key = "0b5c9cde-5d13-4a6e"
	first := s.order(t.Context(), 1, key, twoOf42)
	if created := o.created(1, key, 1); first != created {
		t.Fatalf("got %q, created %q", first, created)
	}
	for _, s := range []*orderShop{s, copies, away} {
		want(s, 1, key, twoOf42, first)
		want(s, 1, key, `{"product": 42, "quantity": 1}`, "422")
	}
	o.created(1, key, 1)
	if want := o.created(2, key, 1); want != "none" {
		t.Errorf("another customer has %s", want)
	}
	want(away, 2, key, twoOf42, "201") // the key of another customer
	o.created(2, key, 2)
	for _, bad := range []string{"", key[:15], strings.Repeat("k", 65), key + " ", key + "\n", key + "é", key + "'", key + ":1", key + "{}"} {
		want(s, 1, bad, twoOf42, "400 Idempotency-Key")
	}
	want(s, 0, key, twoOf42, "401")
	for _, bad := range []string{"0", "2147483648", "-2147483648"} {
		want(s, 1, strings.ToUpper(key), `{"product": 42, "quantity": `+bad+`}`, "400")
	}
	want(s, 1, strings.ToUpper(key), `{"product": 42, "quantity": 2147483647}`, "409") // nothing is stored
	want(s, 1, strings.ToUpper(key), `{"product": 43, "quantity": 2}`, "409")
	want(s, 1, strings.ToUpper(key), twoOf42, "201")
	o.created(1, strings.ToUpper(key), 3)

	run(t, o.db, "UPDATE orders SET created_at = created_at - INTERVAL 35 DAY WHERE customer_id = 1 AND request_key = '"+key+"'", ClearResponses)
	want(copies, 1, key, twoOf42, first)
	want(away, 1, key, twoOf42, "410")
	want(away, 1, key, `{"product": 42, "quantity": 1}`, "422")
	want(away, 1, strings.ToUpper(key), twoOf42, "201")
	run(t, o.db, "ALTER TABLE orders ADD x INT UNIQUE", "UPDATE orders SET x = 7 WHERE customer_id = 2",
		"ALTER TABLE orders ALTER x SET DEFAULT 7") // an error that no key explains
	want(away, 1, key+"-2", twoOf42, "503")
	o.created(1, key, 3)
}

// Requests that come while the first one is under way wait for its end, and get its response, or
// one of them creates the order. The first client repeats its request after an error.
func TestOrdersAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, at string
		end      error
		waiting  int
	}{
		{"commits", "after UPDATE orders", nil, 3},
		{"fails", "after UPDATE orders", errors.New("the connection is lost"), 3},
		{"commits and gets no answer", "after COMMIT", errors.New("the connection is lost"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrderWorld(t)
			const key = "0b5c9cde-5d13-4a6e"
			reached, end := make(chan struct{}), make(chan error)
			var once sync.Once
			first := o.open(o.url, func(name string) (err error) {
				if strings.HasPrefix(name, c.at) {
					once.Do(func() {
						close(reached)
						select {
						case err = <-end:
						case <-t.Context().Done():
						}
					})
				}
				return err
			})
			others := []*orderShop{o.open(o.url, noStep), o.open(o.url, noStep), o.open(o.url, noStep)}
			ask := func(s *orderShop) <-chan string {
				answer := make(chan string, 1)
				go func() { answer <- s.order(t.Context(), 1, key, twoOf42) }()
				return answer
			}
			answer := ask(first)
			<-reached
			var answers []<-chan string
			for _, s := range others {
				answers = append(answers, ask(s))
			}
			testenv.Eventually(t, "the others to wait", func() bool {
				run(t, o.db, "DO SLEEP(0.11)") // InnoDB caches the list of transactions for 0.1 s
				return len(testenv.Sessions(t, o.db, "db = DATABASE() AND id IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT')")) == c.waiting
			})
			end <- c.end
			if got := <-answer; c.end != nil && !strings.HasPrefix(got, "503") {
				t.Errorf("the first answer is %s", got)
			}
			for i, s := range append(others, first) {
				got := s.order(t.Context(), 1, key, twoOf42)
				if i < len(answers) {
					if at := <-answers[i]; at != got {
						t.Errorf("client %d got %s, then %s", i, at, got)
					}
				}
				if want := o.created(1, key, 1); got != want {
					t.Errorf("client %d got %s, created was %s", i, got, want)
				}
			}
		})
	}
}
