package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/lab/verify"
)

func newVerify() *cobra.Command {
	cfg := verify.Config{Progress: os.Stderr}
	load, asJSON, reader := false, false, ""
	cmd := &cobra.Command{
		Use:   "verify --load",
		Short: "Check every read against what was committed, while things break",
		Long: `Write rows through MySQL and the outbox, read them through package cache in several processes,
break workers, servers and connections phase by phase, and check every read against what was
committed before it began. Each phase has its bound; exit code 1 if a read was older than
that. Ctrl-C ends with a report.

Phases: ` + strings.Join(verify.PhaseNames(false), ", ") + `

With --cluster: ` + strings.Join(verify.PhaseNames(true), ", ") + `

With --client, readers in other languages take part, through the same faults. Each speaks the lines
of lab/conform/README.md. The report counts its reads by source. A planted bug of readers is then
theirs: they find its name in UNSTALE_PLANT.

Bugs to plant, each of which must be found:
` + listing(verify.Plants, func(p verify.Plant) (string, string) { return p.Name, p.Breaks }),
		Example: `  unstale-lab verify --load --for 1h
  unstale-lab verify --load --phase calm --phase "redis empty" --for 5m --json
  unstale-lab verify --load --cluster --for 10m
  unstale-lab verify --load --plant bare-fill
  unstale-lab verify --load --client "node reader.js" --client "php reader.php" --readers 1`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !load {
				return usageError{errors.New("--load is required")}
			}
			return runVerify(cmd.Context(), cfg, reader, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&load, "load", false, "check reads under load")
	flags.StringVar(&cfg.Binary, "binary", beside(), "the program under test")
	flags.StringVar(&reader, "reader", "", "another unstale-lab for the reader processes, such as an older one (default this one)")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "seed of writes and faults; 0: random and printed")
	flags.DurationVar(&cfg.For, "for", time.Minute, "measuring time; each phase has a turn at least once, so all phases take about six minutes")
	flags.DurationVar(&cfg.Turn, "turn", 0, "of a phase; calm ones take twelve times as long (default 12s)")
	flags.BoolVar(&cfg.Cluster, "cluster", false, "use a Redis Cluster of three masters with replicas")
	flags.StringArrayVar(&cfg.Phases, "phase", nil, "phase to run; repeatable (default all)")
	flags.StringVar(&cfg.Plant, "plant", "", "plant a bug, and end when it is found")
	flags.BoolVar(&cfg.UntilDiffers, "shadow", false, "make shadow reads, and end when a worker confirms one")
	flags.StringArrayVar(&cfg.Clients, "client", nil, "shell command of a reader in any language, started twice; repeatable")
	flags.IntVar(&cfg.Readers, "readers", 0, "reader processes of package cache (default 2, or 0 with --client)")
	flags.IntVar(&cfg.Reads, "reads", 9000, "reads a second to aim at")
	flags.IntVar(&cfg.Writes, "writes", 1100, "writes a second to aim at")
	flags.BoolVar(&cfg.RawValues, "raw-values", false, "entries with base64 and of format 2 instead of JSON")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	cmd.AddCommand(&cobra.Command{
		Use: "reader", Hidden: true, Short: "Be a reader process of verify", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verify.Read(cmd.Context(), os.Stdin, os.Stdout)
		},
	})
	return cmd
}

func runVerify(ctx context.Context, cfg verify.Config, reader string, asJSON bool) error {
	var err error
	if reader != "" {
		cfg.Reader = []string{reader, "verify", "reader"}
		if len(cfg.Phases) == 0 { // an older reader does not know what these need
			cfg.Phases = slices.DeleteFunc(verify.PhaseNames(cfg.Cluster), func(name string) bool {
				return name == "master demoted" || name == "demoted in place" || name == "other database" || name == "patterns flood"
			})
		}
	} else if cfg.Reader, err = selfAs("verify", "reader"); err != nil {
		return err
	}
	cfg.UntilFound = cfg.Plant != "" && !cfg.UntilDiffers
	if err := cfg.WithDefaults().Validate(); err != nil {
		return usageError{err}
	}
	report, err := verify.Run(ctx, cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, show(report, asJSON))
	if n := report.Violations(); err == nil && n > 0 {
		err = fmt.Errorf("reads beyond the bound: %s", report.Beyond())
	}
	return err
}

// selfAs returns the command that runs this program as a process of a checker.
func selfAs(args ...string) ([]string, error) {
	self, err := os.Executable()
	return append([]string{self}, args...), err
}

// show prints the report of a checker.
func show(report fmt.Stringer, asJSON bool) error {
	if asJSON {
		return output.JSON(os.Stdout, report)
	}
	_, err := fmt.Print(report)
	return err
}

// listing returns the part of the help that describes the elements of a list.
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
