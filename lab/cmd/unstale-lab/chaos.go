package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/lab/chaos"
)

func newChaos() *cobra.Command {
	cfg := chaos.Config{Progress: os.Stderr}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything until a million transactions are proven",
		Long: `Run a shop, workers, MySQL and Redis as processes, break them by a schedule, and check each
transaction of the shop: its keys are gone, or it waits for a visible reason. Exit
code 1 if anything is lost. The checker shares no code with the worker.`,
		Example: `  unstale-lab chaos --seed 7          # repeats a schedule
  unstale-lab chaos --proven 1000 --kills 5 --decks 1     # a short run`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := chaos.Run(cmd.Context(), cfg)
			if report == nil {
				return err
			}
			err = errors.Join(err, show(report, asJSON))
			if err == nil && len(report.Lost) > 0 {
				err = fmt.Errorf("lost: %d", len(report.Lost))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Binary, "binary", beside(), "the program under test")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "of the schedule; 0: a random one, which is printed")
	flags.StringVar((*string)(&cfg.Flavor), "flavor", "", "mysql or mariadb (default mysql)")
	flags.StringVar(&cfg.Topology, "topology", chaos.OneServer, "server, primary (Group Replication behind HAProxy) or primaries (Group Replication or Galera whose nodes all take writes)")
	flags.IntVar(&cfg.Workers, "workers", 3, "number of workers")
	flags.IntVar(&cfg.Writers, "writers", 12, "concurrent clients of the shop")
	flags.IntVar(&cfg.Proven, "proven", 1_000_000, "transactions to prove before the run ends")
	flags.IntVar(&cfg.Kills, "kills", 300, "and this many workers were killed")
	flags.IntVar(&cfg.Decks, "decks", 20, "and every kind of fault happened this often")
	flags.DurationVar(&cfg.Round, "round", 0, "time between two checks (default 20s)")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}
