package fleet

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
)

// OrDefault replaces a zero.
func OrDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Between draws a duration from least on, below most.
func Between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// DSN is for many short statements: each is one round trip. The driver says nothing of connections that break.
func DSN(server *servers.MySQL, database string) string {
	cfg, err := mysql.ParseDSN(server.DSN(database))
	if err != nil {
		panic(err) // it was made by FormatDSN
	}
	cfg.InterpolateParams = true
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
}

// Silence is a log that nobody reads, for the client library of Redis: where servers break, errors are expected.
type Silence struct{}

// Printf implements the client library's logger.
func (Silence) Printf(context.Context, string, ...any) {}
