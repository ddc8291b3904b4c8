package demo

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/redisurl"
)

// tillVariable makes a program that contains the demo run as a till.
const tillVariable = "UNSTALE_DEMO_TILL"

// IsTill reports whether this process was started as a till. main must then call RunTill and
// nothing else.
func IsTill() bool { return os.Getenv(tillVariable) != "" }

// The lines that a till prints.
const (
	// it has read that the coupon is unused, and waits for an order before it writes
	saysRead     = "read"
	saysRedeemed = "redeemed"
	saysUsed     = "used" // another till has redeemed it
	saysRefused  = "refused"
)

// A sale is the task of a till. It arrives on standard input, since the DSN can contain a password.
type sale struct {
	Till     string
	DSN      string
	RedisURL string
	Prefix   string // of the keys of locks
	Coupon   string
	Guarded  bool // in held.InTx
	Waits    bool // after its SELECT and before its INSERT, for another line of input
}

const (
	tillTTL   = time.Second // of its lock: the demo waits at least this long
	tillPause = 100 * time.Millisecond
)

// RunTill reads a sale, makes it, and prints the outcome. It returns the exit code.
func RunTill() int {
	keyspace.SetClientLog(nil)
	orders := bufio.NewScanner(os.Stdin)
	var s sale
	orders.Scan()
	err := json.Unmarshal(orders.Bytes(), &s)
	if err == nil {
		err = s.make(orders, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Till, err)
		return 1
	}
	return 0
}

func (s *sale) make(orders *bufio.Scanner, says io.Writer) error {
	config, err := mysql.ParseDSN(s.DSN)
	if err != nil {
		return errors.New("the DSN cannot be read") // the driver's error may show the password
	}
	config.Logger = &mysql.NopLogger{}
	db, err := open(config)
	if err != nil {
		return err
	}
	defer db.Close()
	options, err := redisurl.Parse(s.RedisURL, false)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewUniversalClient(options)
	defer client.Close()
	locks, err := lock.New(lock.Config{
		Backend: lock.Redis{Client: client, Prefix: s.Prefix}, MySQL: config, TTL: tillTTL, Timeout: tillTTL / 3, Holder: s.Till,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(context.Background(), raceLimit)
	defer cancel()
	till := &till{sale: s, locks: locks, db: db, orders: orders, says: says}
	for {
		outcome, err := till.redeem(ctx)
		if outcome != "" {
			fmt.Fprintln(says, outcome)
			return nil
		}
		if sleep.For(ctx, tillPause) != nil { // a busy machine loses locks as well
			return fmt.Errorf("redeem coupon %s: %w", s.Coupon, err)
		}
	}
}

// A till is a process that redeems coupons.
type till struct {
	*sale
	locks  *lock.Locker
	db     *sql.DB
	orders *bufio.Scanner
	says   io.Writer
	read   bool // it has reported its read
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// redeem makes one attempt. An empty outcome means that nothing was stored or reported, so the
// attempt can be repeated.
func (t *till) redeem(ctx context.Context) (outcome string, err error) {
	kept := false // unaffected by the release of a lost lock
	err = t.locks.Do(ctx, couponLock(t.Coupon), func(section context.Context, held *lock.Held) (err error) {
		if t.Guarded {
			err = held.InTx(section, t.db, func(tx *sql.Tx) (err error) {
				outcome, err = t.sell(section, tx)
				return err
			})
		} else {
			// Use ctx, as a program without guarding does: section has ended when the till
			// continues.
			outcome, err = t.sell(ctx, t.db)
		}
		kept = err == nil
		return err
	})
	switch {
	case kept:
		return outcome, nil
	case t.read:
		return saysRefused, nil
	}
	return "", err
}

// Contract: no lock; reads the rows of one coupon, at most one unless it was redeemed twice.
const usedSQL = "SELECT COUNT(*) FROM redemptions WHERE coupon = ?"

// Contract: appends a row.
const redeemSQL = "INSERT INTO redemptions (coupon, till) VALUES (?, ?)"

// sell redeems the coupon unless it has been redeemed.
func (t *till) sell(ctx context.Context, q querier) (outcome string, err error) {
	var used int
	if err := q.QueryRowContext(ctx, usedSQL, t.Coupon).Scan(&used); err != nil {
		return "", err
	}
	if used > 0 {
		return saysUsed, nil
	}
	if t.Waits {
		t.read = true
		fmt.Fprintln(t.says, saysRead)
		t.orders.Scan()
	}
	if _, err := q.ExecContext(ctx, redeemSQL, t.Coupon, t.Till); err != nil {
		return "", err
	}
	return saysRedeemed, nil
}

func couponLock(coupon string) string { return "coupon:" + coupon }
