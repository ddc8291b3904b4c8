package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/verifylocks"
)

func newVerifyLocks() *cobra.Command {
	cfg := verifylocks.Config{Progress: os.Stderr}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify-locks",
		Short: "Count the updates that are lost under locks, while things break",
		Long: `Raise counters of MySQL in sections of package lock, in several processes, break these and the
servers phase by phase, and compare the counters with a ledger. Guarded sections must lose no
update: exit code 1 if they do, or if sections that rely on leases alone lose none either, since
then nothing was proven. Ctrl-C ends with a report.

Phases:
` + lockPhases() + `

Bugs to plant, each of which must be found:
` + lockPlants(),
		Example: `  unstale-lab verify-locks --sections 100000
  unstale-lab verify-locks --phase "holder frozen" --phase failover --json
  unstale-lab verify-locks --plant no-guard`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerifyLocks(cmd.Context(), cfg, asJSON) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&cfg.Seed, "seed", 0, "of what is locked and broken; 0: a random one, which is printed")
	flags.IntVar(&cfg.Sections, "sections", 1_000_000, "go on until so many guarded sections are committed; each phase has its turn at least once")
	flags.DurationVar(&cfg.Turn, "turn", 0, "of a phase (default 15s)")
	flags.DurationVar(&cfg.TTL, "ttl", 0, "of the locks (default 1s)")
	flags.StringArrayVar(&cfg.Phases, "phase", nil, "play this phase, which may be given several times (default all)")
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Holder = []string{self, "verify-locks", "holder"}
	cfg.UntilFound = cfg.Plant != ""
	if err := cfg.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	report, err := verifylocks.Run(ctx, cfg)
	if report == nil {
		return err
	}
	if asJSON {
		err = errors.Join(err, output.JSON(os.Stdout, report))
	} else {
		fmt.Print(report)
	}
	switch blind := report.Blind(); {
	case err != nil:
	case report.Wrong() > 0:
		err = fmt.Errorf("guarded sections that do not add up: %d", report.Wrong())
	case len(blind) > 0 && cfg.Plant == "":
		err = fmt.Errorf("nothing is proven about %s: sections without Guard have lost nothing either", strings.Join(blind, ", "))
	}
	return err
}

// lockPhases are the lines of the help about them.
func lockPhases() string {
	var b strings.Builder
	for _, p := range verifylocks.Phases() {
		fmt.Fprintf(&b, "  %-14s %s\n", p.Name, p.What)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func lockPlants() string {
	var b strings.Builder
	for _, p := range verifylocks.Plants {
		fmt.Fprintf(&b, "  %-12s %s\n", p.Name, p.Breaks)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
