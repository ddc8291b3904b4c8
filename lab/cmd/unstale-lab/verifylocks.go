package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/lab/verifylocks"
)

func newVerifyLocks() *cobra.Command {
	cfg := verifylocks.Config{Progress: os.Stderr}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify-locks",
		Short: "Count the updates that are lost under locks, while things break",
		Long: `Raise counters of MySQL in sections of package lock, in several processes, break these and the
servers phase by phase, and compare the counters with a ledger. Guarded sections must lose no
update: exit code 1 if they do, or if sections that rely on leases alone lose none either with one
of the backends, since then nothing was proven of that. Ctrl-C ends with a report.

Phases:
` + listing(verifylocks.Phases(), func(p verifylocks.Phase) (string, string) { return p.Name, p.What }) + `

Bugs to plant, each of which must be found:
` + listing(verifylocks.Plants, func(p verifylocks.Plant) (string, string) { return p.Name, p.Breaks }),
		Example: `  unstale-lab verify-locks --sections 100000
  unstale-lab verify-locks --phase "holder frozen" --phase failover --json
  unstale-lab verify-locks --backend zookeeper --sections 10000
  unstale-lab verify-locks --plant no-guard`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerifyLocks(cmd.Context(), cfg, asJSON) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&cfg.Seed, "seed", 0, "seed of locks and faults; 0: random and printed")
	flags.IntVar(&cfg.Sections, "sections", 1_000_000, "guarded sections to commit before the run ends; each phase runs at least once")
	flags.DurationVar(&cfg.Turn, "turn", 0, "of a phase (default 15s)")
	flags.DurationVar(&cfg.TTL, "ttl", 0, "of the locks (default 1s)")
	flags.StringArrayVar(&cfg.Backends, "backend", nil, "use this one of "+strings.Join(verifylocks.Backends(), ", ")+"; may be given several times (default all)")
	flags.StringArrayVar(&cfg.Phases, "phase", nil, "phase to run; repeatable (default all)")
	flags.StringVar(&cfg.Plant, "plant", "", "plant a bug, and end when it is found")
	flags.IntVar(&cfg.Holders, "holders", 3, "holder processes")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	cmd.AddCommand(&cobra.Command{
		Use: "holder", Hidden: true, Short: "Be a holder process of verify-locks", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verifylocks.Hold(cmd.Context(), os.Stdin, os.Stdout)
		},
	})
	return cmd
}

func runVerifyLocks(ctx context.Context, cfg verifylocks.Config, asJSON bool) error {
	var err error
	if cfg.Holder, err = selfAs("verify-locks", "holder"); err != nil {
		return err
	}
	cfg.UntilFound = cfg.Plant != ""
	if err := cfg.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	report, err := verifylocks.Run(ctx, cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, show(report, asJSON))
	switch blind := report.Blind(); {
	case err != nil:
	case report.Wrong() > 0:
		err = fmt.Errorf("guarded sections that do not add up: %d", report.Wrong())
	case len(blind) > 0 && cfg.Plant == "":
		err = fmt.Errorf("nothing is proven about %s: sections without Guard have lost nothing either", strings.Join(blind, ", "))
	}
	return err
}
