package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/demo"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/servers"
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
		Short: "Play the main job on private servers and show what happened",
		Long: `Play the main job: start a private MySQL and Redis, create a shop and its cache, and run the
worker. Change prices while naive readers load, then the same with package cache, and count the
old prices that stay. Redeem a coupon at two tills, one of them frozen. Then play transactions against the shop, look what became of every key, and
print a table. Exit code 1 if anything was unexpected. Nothing is left behind.

Server programs are taken from PATH or from .servers/, which scripts/servers fills. With
--mysql-dsn or --redis-url servers that run already are used; the demo works there in a
database of its own and touches only keys that it wrote. The variables MYSQL_DSN and REDIS_URL
are not read: they may name a system that somebody needs.`,
		Example: `  unstale-lab demo
  unstale-lab demo --serve                # keeps running, to play with
  unstale-lab demo --flavor mariadb
  unstale-lab demo --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/' --redis-url redis://127.0.0.1:6379/0`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&d.config.MapFile, "map", "mapping.yaml", "the map's file")
	flags.StringVar(&d.flavor, "flavor", "", "private database: mysql or mariadb (default mysql, if it can be had)")
	flags.StringVar(&d.config.MySQLDSN, "mysql-dsn", "", "use this MySQL, as user:password@tcp(host:3306)/; never read from MYSQL_DSN")
	flags.StringVar(&d.config.RedisURL, "redis-url", "", "use this Redis; never read from REDIS_URL")
	flags.BoolVar(&d.serve, "serve", false, "keep everything running after the table, until Ctrl-C")
	flags.BoolVar(&d.json, "json", false, "print one JSON object instead of the table")
	flags.BoolVar(&d.verbose, "verbose", false, "show the worker's log")
	return cmd
}

func (d *demoCommand) run(ctx context.Context) error {
	if d.serve && d.json {
		return usageError{errors.New("--serve and --json do not go together")}
	}
	d.config.Flavor = servers.Kind(d.flavor)
	d.config.Env = os.LookupEnv
	d.config.Steps = os.Stdout
	if d.json {
		d.config.Steps = os.Stderr
	}
	if d.verbose {
		d.config.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	keyspace.SetClientLog(d.config.Log)
	if err := d.config.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	return d.play(ctx)
}

var errInterrupted = errors.New("the demo was interrupted")

// interrupted replaces what a call says that was cut off by Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// play returns after everything was removed again.
func (d *demoCommand) play(ctx context.Context) (err error) {
	session, err := demo.Start(ctx, d.config)
	if errors.Is(err, os.ErrNotExist) && d.config.MapFile == "mapping.yaml" {
		return fmt.Errorf("%w; run the demo in the checkout, or name a map with --map", err)
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	report, err := session.Play(ctx)
	err = interrupted(ctx, err)
	if err == nil && !report.OK {
		err = errors.New("demo: not as it should be: the report says what was unexpected")
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
