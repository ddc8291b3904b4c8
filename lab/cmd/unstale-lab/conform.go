package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/lab/conform"
)

func newConform() *cobra.Command {
	cfg := conform.Config{Progress: os.Stderr}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "conform [flags] -- COMMAND [ARGUMENT]...",
		Short: "Judge a reader in any language against the protocol",
		Long: `Start a Redis and a proxy in front of it, and run COMMAND twice as a client that reads as
docs/protocol.md says. The judge tells it in lines of JSON what to fetch, holds each of its round
trips until a schedule permits it, plays the writer and the worker, and names each rule that the
client breaks. lab/conform/README.md describes the lines. Exit code 1 if a rule is broken. Ctrl-C
ends without a verdict.

Rules:
` + listing(conform.Rules, func(r conform.Rule) (string, string) { return r.Name, r.What }) + `

Events of schedules: ` + strings.Join(conform.Events, ", "),
		Example: `  unstale-lab conform -- node reader.js
  unstale-lab conform --json -- unstale-lab conform-client --l1
  unstale-lab conform --only case --only order/12 --seed 7 -- php reader.php`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Command = args
			if err := cfg.WithDefaults().Validate(); err != nil {
				return usageError{err}
			}
			report, err := conform.Examine(cmd.Context(), cfg)
			if report == nil {
				return err
			}
			if err != nil && !report.Rejected() {
				return err // no verdict
			}
			err = errors.Join(err, show(report, asJSON))
			if err == nil && report.Rejected() {
				err = fmt.Errorf("the client breaks rules: %s", report.Broken())
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&cfg.Seed, "seed", 0, "seed of the schedules of two readers; 0: random and printed")
	flags.IntVar(&cfg.Pairs, "pairs", 500, "schedules of two readers")
	flags.IntVar(&cfg.Every, "every", 1, "play each so many-th schedule of two readers or with an event")
	flags.StringArrayVar(&cfg.Only, "only", nil, "schedule to play, or the beginning of its name; repeatable (default all)")
	flags.IntVar(&cfg.Most, "most", 20, "end after so many breaches")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

// newConformClient returns the client in Go that conform can judge.
func newConformClient() *cobra.Command {
	var o conform.ClientOptions
	cmd := &cobra.Command{
		Use:    "conform-client",
		Hidden: true,
		Short:  "Be a client of conform",
		Long: `Be a client that unstale-lab conform judges: package cache, with a bug on request.

Bugs:
` + listing(conform.Plants, func(p conform.Plant) (string, string) { return p.Name, p.String() }),
		Example: `  unstale-lab conform -- unstale-lab conform-client --l1
  unstale-lab conform -- unstale-lab conform-client --plant bare-fill`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return conform.ServeClient(cmd.Context(), os.Stdin, os.Stdout, o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.L1, "l1", false, "with an in-process cache")
	flags.StringVar(&o.Plant, "plant", "", "plant this bug")
	return cmd
}
