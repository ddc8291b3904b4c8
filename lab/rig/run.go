package rig

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// Begin starts a run of a suite. It chooses a seed if that is 0 and prints it, silences the log of
// the Redis client, since errors are expected, and makes a directory, which end removes.
func Begin(name string, seed *uint64, progress io.Writer) (dir string, end func(), err error) {
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1<<32)
	}
	fmt.Fprintf(progress, "%s: seed %d\n", name, *seed)
	redis.SetLogger(Silence{})
	dir, err = os.MkdirTemp("", "unstale-"+name+"-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// OrDefault replaces a zero.
func OrDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Wait looks once per period until done, at most for a time.
func Wait(ctx context.Context, limit, period time.Duration, done func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %s", limit)
		}
		if err := sleep.For(ctx, period); err != nil {
			return err
		}
	}
}

// Between draws a duration from least on, below most.
func Between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// DSN returns a data source name for many short statements: each takes one round trip. The driver
// does not log broken connections.
func DSN(server *servers.MySQL, database string) string {
	cfg, err := mysql.ParseDSN(server.DSN(database))
	if err != nil {
		panic(err) // it was made by FormatDSN
	}
	cfg.InterpolateParams = true
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
}

// Prepare runs statements as an administrator of a server.
func Prepare(ctx context.Context, server *servers.MySQL, statements ...string) error {
	admin, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, statement := range statements {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prepare mysql: %w", err)
		}
	}
	return nil
}

// Silence is a logger for the Redis client that discards everything. When servers break, errors are
// expected.
type Silence struct{}

// Printf implements the client library's logger.
func (Silence) Printf(context.Context, string, ...any) {}
