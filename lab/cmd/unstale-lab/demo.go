package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/demo"
)

// demoCommand is "unstale-lab demo".
type demoCommand struct {
	config  demo.Config
	flavor  string
	serve   bool
	json    bool
	verbose bool
}

func newDemo() *cobra.Command {
	d := &demoCommand{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on private servers what unstale does",
		Long: `Start a private MySQL or MariaDB and a private Redis, create a shop with a cache, and run the
worker. Then:

  - change prices while readers load them, first with naive readers and then with package cache,
    count the old prices that stay, and the invalidations that were in time
  - change a price without an outbox row, first without triggers and then with them
  - redeem one coupon in two processes, one of them frozen, first with a lock alone and then in
    a guarded transaction
  - run transactions against the shop, check every key, and print a table

The demo removes everything that it created.

Server programs come from PATH or from .servers/, which scripts/servers fills. With --mysql-dsn
or --redis-url, the demo uses running servers. It creates a database of its own there and
touches only keys that it wrote. It ignores MYSQL_DSN and REDIS_URL, because they may name a
production system.

Exit codes:
  0  all results are as expected
  1  a result was unexpected, or the demo could not run
  2  wrong usage`,
		Example: `  unstale-lab demo
  unstale-lab demo --serve                # keeps running so that you can experiment
  unstale-lab demo --flavor mariadb
  unstale-lab demo --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/' --redis-url redis://127.0.0.1:6379/0`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&d.config.MapFile, "map", "mapping.yaml", "map file")
	flags.StringVar(&d.flavor, "flavor", "", "private database: mysql or mariadb (default mysql, if available)")
	flags.StringVar(&d.config.MySQLDSN, "mysql-dsn", "", "running MySQL or MariaDB to use, as user:password@tcp(host:3306)/; MYSQL_DSN is ignored")
	flags.StringVar(&d.config.RedisURL, "redis-url", "", "running Redis or Valkey to use; REDIS_URL is ignored")
	flags.BoolVar(&d.serve, "serve", false, "keep the servers running after the table, with the console, until Ctrl-C")
	flags.BoolVar(&d.json, "json", false, "print one JSON object instead of the table")
	flags.BoolVar(&d.verbose, "verbose", false, "show the worker's log")
	return cmd
}

func (d *demoCommand) run(ctx context.Context) error {
	if d.serve && d.json {
		return usageError{errors.New("--serve cannot be combined with --json")}
	}
	d.config.Flavor = servers.Kind(d.flavor)
	d.config.Env = os.LookupEnv
	d.config.Steps = os.Stdout
	if d.json {
		d.config.Steps = os.Stderr
	}
	if d.verbose {
		d.config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	keyspace.SetClientLog(d.config.Logger)
	if err := d.config.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	return d.play(ctx)
}

var errInterrupted = errors.New("the demo was interrupted")

// interrupted replaces the error of a call that Ctrl-C has canceled.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// play returns after it has removed everything.
func (d *demoCommand) play(ctx context.Context) (err error) {
	session, err := demo.Start(ctx, d.config)
	if errors.Is(err, os.ErrNotExist) && d.config.MapFile == "mapping.yaml" {
		return fmt.Errorf("%w; run the demo in the checkout, or name a map with --map", err)
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		err = errors.Join(err, session.Close())
		if fallback := session.Fallback(); fallback != "" {
			fmt.Fprintln(d.config.Steps, fallback)
		}
	}()
	report, err := session.Play(ctx)
	err = interrupted(ctx, err)
	if err == nil && !report.OK {
		err = errors.New("demo: unexpected results; the report lists them")
	}
	if d.json {
		err = errors.Join(err, output.JSON(os.Stdout, report))
	} else {
		err = errors.Join(err, report.WriteTable(os.Stdout))
	}
	if err != nil {
		return err
	}
	if d.serve {
		return session.Serve(ctx, os.Stdout, beside())
	}
	return nil
}
