// Package outboxes compares unstale with other ways to deliver rows from MySQL to Redis:
// watermill-sql as a queue, and the outbox of oagudo. Each empties its own table into the same
// UNLINK and PUBLISH, alternating on the same servers.
package outboxes

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/lab/bench"
	"github.com/unstale/unstale/lab/peers/command"
)

// Rows of a turn. The slowest participant does a thousand in a second.
const (
	fewestRows  = 100
	mostRows    = 1_000_000
	defaultRows = 20_000
)

const about = `Compare unstale with watermill-sql and the outbox of oagudo, on private servers.

All drain the same number of rows into the same UNLINK and PUBLISH, in turns; medians are reported,
and how many times as fast as the fastest peer ours is. Private servers are started and removed.
With --redis-url and --mysql-dsn servers that run already are used: a Redis whose database is
empty, and a MySQL in a separate database. The variables REDIS_URL and MYSQL_DSN are not read:
they may name a production system.

Example:
  make bench-peers BENCH='--runs 1 --json'

Flags:
`

// Run runs the command and returns its exit code: 0 measured, 1 failed, 2 wrong usage.
func Run(ctx context.Context, args []string, out, progress io.Writer) int {
	cfg := bench.Config{Progress: progress}
	flags := flag.NewFlagSet("peers outboxes", flag.ContinueOnError)
	flags.IntVar(&cfg.Runs, "runs", 5, "alternating runs of each, 1 to 100")
	rows := flags.Int("rows", defaultRows, "how many each drains in a turn, 100 to 1,000,000")
	flags.StringVar(&cfg.RedisURL, "redis-url", "", "use the Redis at this `URL`, whose database must be empty")
	flags.StringVar(&cfg.MySQLDSN, "mysql-dsn", "", "use the MySQL at this `DSN`, in a database that is made and dropped")
	asJSON := flags.Bool("json", false, "print one JSON object")
	if code, done := command.Parse(flags, about, args, progress); done {
		return code
	}
	switch {
	case cfg.Runs < 1 || cfg.Runs > 100:
		fmt.Fprintf(progress, "peers outboxes: --runs %d: must be 1 to 100\n", cfg.Runs)
		return 2
	case *rows < fewestRows || *rows > mostRows:
		fmt.Fprintf(progress, "peers outboxes: --rows %d: must be %d to %d\n", *rows, fewestRows, mostRows)
		return 2
	}
	keyspace.SetClientLog(nil)
	standing, err := bench.Race(ctx, cfg, *rows, peers()...)
	if err == nil {
		err = report(out, standing, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(progress, "peers outboxes:", err)
		return 1
	}
	return 0
}

// peers returns the other projects, each with its defaults except for the named setting, and tuned.
func peers() []bench.Peer {
	return []bench.Peer{
		watermillQueue("watermill-sql", 100),
		watermillQueue("watermill-sql, batch 1000", 1000),
		oagudoOutbox("oagudo/outbox", 20),
		oagudoOutbox("oagudo/outbox, deletes 1000", 1000),
	}
}

func report(out io.Writer, s *bench.Standing, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(s)
	}
	fmt.Fprintf(out, "%-28s %8s %10s %8s %8s\n", "", s.Unit, "ours is", "UNLINK", "PUBLISH")
	for _, r := range s.Results {
		fmt.Fprintf(out, "%-28s %8.0f %8.2f x %8d %8d\n", r.Name, r.Rate, r.Ratio, r.Unlinks, r.Publishes)
	}
	m := s.Machine
	_, err := fmt.Fprintf(out, "%d rows, medians of %d, on %s, %d cores, %s, %s, %s\n",
		s.Rows, s.Runs, m.CPU, m.Cores, m.System, m.Go, strings.Join(m.Servers, ", "))
	return err
}
