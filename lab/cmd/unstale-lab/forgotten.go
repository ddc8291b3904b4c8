package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/lab/forgotten"
)

func newForgotten() *cobra.Command {
	cfg := forgotten.Config{Progress: os.Stderr}
	load, asJSON := false, false
	cmd := &cobra.Command{
		Use:   "forgotten --load",
		Short: "Find writes without a row by shadow reads",
		Long: `Run a shop whose clients write with rows of the outbox and read through package cache with shadow
reads. After a million reads, forget the row of one write on each of twelve paths, and report after
how many reads each is found. Exit code 1 if one is not found, or if something else is.`,
		Example: `  unstale-lab forgotten --load
  unstale-lab forgotten --load --reads 20000 --fraction 0.5 --json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !load {
				return usageError{errors.New("--load is required")}
			}
			return runForgotten(cmd.Context(), cfg, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&load, "load", false, "read and write under load")
	flags.StringVar(&cfg.Binary, "binary", beside(), "the program under test")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "seed of reads and writes; 0: random and printed")
	flags.IntVar(&cfg.Reads, "reads", 1_000_000, "reads before the first forgotten write")
	flags.IntVar(&cfg.Writes, "writes", 100, "writes a second with rows, at most")
	flags.Float64Var(&cfg.Fraction, "fraction", 0.1, "share of the values from Redis that is checked")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

func runForgotten(ctx context.Context, cfg forgotten.Config, asJSON bool) error {
	report, err := forgotten.Run(ctx, cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, show(report, asJSON))
	if err == nil && (report.Missed() > 0 || len(report.False) > 0) {
		err = fmt.Errorf("%d forgotten writes were not found; confirmed without one: %q", report.Missed(), report.False)
	}
	return err
}
