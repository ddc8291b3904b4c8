package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/lab/bench"
)

func newBench() *cobra.Command {
	var (
		cfg     bench.Config
		asJSON  bool
		mapFile string
		flavor  string
	)
	cmd := &cobra.Command{
		Use:   "bench MODE",
		Short: "Measure against a baseline on private servers",
		Long: `Measure against a floor: the shortest hand-written loop that does the same work, on the same
servers, in the same run. Both alternate, and the medians and their ratio (ours/floor) are
reported. Modes:

  ` + strings.Join(bench.Modes(), "\n  ") + `

Private servers are started and removed. With --redis-url and --mysql-dsn servers that run
already are used: a Redis whose database is empty, and a MySQL in a separate database. The
variables REDIS_URL and MYSQL_DSN are not read: they may name a production system.`,
		Example: `  unstale-lab bench sweep
  unstale-lab bench sweep --runs 9 --json`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			keyspace.SetClientLog(nil)
			src, err := invalidation.ReadFile(mapFile)
			if err != nil && (!errors.Is(err, os.ErrNotExist) || cmd.Flags().Changed("map")) {
				return err
			}
			cfg.Map, cfg.Flavor = string(src), servers.Kind(flavor)
			self, err := os.Executable()
			if err != nil {
				return err
			}
			cfg.Reader = []string{self, "bench", "reader"}
			if !asJSON {
				cfg.Progress = os.Stderr
			}
			return runBench(cmd.Context(), args[0], cfg, asJSON)
		},
	}
	cmd.Flags().IntVar(&cfg.Runs, "runs", 5, "runs of unstale and of the floor, alternating")
	cmd.Flags().StringVar(&cfg.RedisURL, "redis-url", "", "use this Redis, whose database must be empty; never read from REDIS_URL")
	cmd.Flags().StringVar(&flavor, "flavor", "", "private database: mysql or mariadb (default mysql, if it can be had)")
	cmd.Flags().StringVar(&cfg.MySQLDSN, "mysql-dsn", "", "use this MySQL, in a database that is made and dropped; never read from MYSQL_DSN")
	cmd.Flags().StringVar(&mapFile, "map", "mapping.yaml", "map with the entities of the shipped one; without it, rows of one kind only")
	cmd.Flags().IntVar(&cfg.Workers, "workers", 1, "drain and cost: number of workers")
	cmd.Flags().StringVar(&cfg.Binary, "binary", beside(), "heavy: the program to measure")
	cmd.Flags().StringVar(&cfg.Only, "only", "", "heavy: one kind of rows, such as patterns; migrate: one table; cache: pinned, for hits, misses and the warm-up")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.AddCommand(&cobra.Command{
		Use:   "chart FILE...",
		Short: "Draw the ratios of reports of --json as an SVG",
		Example: `  unstale-lab bench cache --json > cache.json
  unstale-lab bench chart cache.json > chart.svg`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, files []string) error {
			reports := make([][]byte, len(files))
			for i, file := range files {
				var err error
				if reports[i], err = os.ReadFile(file); err != nil {
					return err
				}
			}
			return bench.Chart(os.Stdout, reports)
		},
	}, &cobra.Command{
		Use: "reader", Hidden: true, Short: "Be a reader process of the mode cache", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			keyspace.SetClientLog(nil)
			return bench.ReadAtOnce(cmd.Context(), os.Stdin, os.Stdout)
		},
	})
	return cmd
}

func runsText(n int) string {
	if n == 1 {
		return "one run"
	}
	return fmt.Sprintf("medians of %d", n)
}

func runBench(ctx context.Context, mode string, cfg bench.Config, asJSON bool) error {
	if !slices.Contains(bench.Names(), mode) {
		return usageError{fmt.Errorf("there is no mode %q; the modes are %s", mode, strings.Join(bench.Names(), ", "))}
	}
	if cfg.Runs < 1 || cfg.Workers < 1 {
		return usageError{fmt.Errorf("--runs %d, --workers %d: both must be at least 1", cfg.Runs, cfg.Workers)}
	}
	if err := cfg.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	r, err := bench.Run(ctx, mode, cfg)
	if err != nil {
		return err
	}
	if asJSON {
		return output.JSON(os.Stdout, r)
	}
	fmt.Fprintf(os.Stdout, "%s: ours %.4g %s, floor %.4g %s, ratio %.3g (%s)\n", r.Mode, r.Ours, r.Unit, r.Floor, r.Unit, r.Ratio, runsText(r.Runs))
	for _, name := range slices.Sorted(maps.Keys(r.Details)) {
		fmt.Fprintf(os.Stdout, "  %-34s %v\n", name, r.Details[name])
	}
	m := r.Machine
	fmt.Fprintf(os.Stdout, "  on %s, %d cores, %s, %s, %s\n", m.CPU, m.Cores, m.System, m.Go, strings.Join(m.Servers, ", "))
	return nil
}
