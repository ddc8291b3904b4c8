package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/verify"
)

func newVerify() *cobra.Command {
	cfg := verify.Config{Progress: os.Stderr}
	load, asJSON := false, false
	cmd := &cobra.Command{
		Use:   "verify --load",
		Short: "Check every read against what was committed, while things break",
		Long: `Write rows through MySQL and the outbox, read them through package cache in several processes,
break workers, servers and connections phase by phase, and check every read against what was
committed before it began. Each phase has its bound; exit code 1 if a read was older than
that. Ctrl-C ends with a report.

Phases: ` + strings.Join(verify.PhaseNames(), ", ") + `

Bugs to plant, each of which must be found:
` + listing(verify.Plants, func(p verify.Plant) (string, string) { return p.Name, p.Breaks }),
		Example: `  unstale-lab verify --load --for 1h
  unstale-lab verify --load --phase calm --phase "redis empty" --for 5m --json
  unstale-lab verify --load --plant bare-fill`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !load {
				return usageError{errors.New("say what to verify: --load")}
			}
			return runVerify(cmd.Context(), cfg, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&load, "load", false, "check reads under load")
	flags.StringVar(&cfg.Binary, "binary", beside(), "the program under test")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "of what is written and broken; 0: a random one, which is printed")
	flags.DurationVar(&cfg.For, "for", time.Minute, "measuring time; each phase has a turn at least once, so all phases take about six minutes")
	flags.DurationVar(&cfg.Turn, "turn", 0, "of a phase; calm ones take twelve times as long (default 12s)")
	flags.StringArrayVar(&cfg.Phases, "phase", nil, "play this phase, which may be given several times (default all)")
	flags.StringVar(&cfg.Plant, "plant", "", "plant a bug, and end when it is found")
	flags.IntVar(&cfg.Readers, "readers", 2, "reader processes")
	flags.IntVar(&cfg.Reads, "reads", 9000, "reads a second to aim at")
	flags.IntVar(&cfg.Writes, "writes", 1100, "writes a second to aim at")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	cmd.AddCommand(&cobra.Command{
		Use: "reader", Hidden: true, Short: "Be a reader process of verify", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verify.Read(cmd.Context(), os.Stdin, os.Stdout)
		},
	})
	return cmd
}

func runVerify(ctx context.Context, cfg verify.Config, asJSON bool) error {
	var err error
	if cfg.Reader, err = selfAs("verify", "reader"); err != nil {
		return err
	}
	cfg.UntilFound = cfg.Plant != ""
	if err := cfg.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	report, err := verify.Run(ctx, cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, show(report, asJSON))
	if n := report.Violations(); err == nil && n > 0 {
		err = fmt.Errorf("reads beyond the bound: %d", n)
	}
	return err
}

// selfAs is the command that makes this program a process of a meter.
func selfAs(args ...string) ([]string, error) {
	self, err := os.Executable()
	return append([]string{self}, args...), err
}

// show prints a meter's report.
func show(report fmt.Stringer, asJSON bool) error {
	if asJSON {
		return output.JSON(os.Stdout, report)
	}
	_, err := fmt.Print(report)
	return err
}

// listing is the part of the help that tells of each of a list.
func listing[T any](list []T, tell func(T) (name, what string)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, item := range list {
		name, what := tell(item)
		fmt.Fprintf(w, "  %s\t%s\n", name, what)
	}
	_ = w.Flush() // into memory
	return strings.TrimSuffix(b.String(), "\n")
}
