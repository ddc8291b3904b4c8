package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/alter"
)

func newAlter() *cobra.Command {
	cfg := alter.Config{Progress: os.Stderr}
	asJSON, flavor, only := false, "", []string{}
	cmd := &cobra.Command{
		Use:   "alter",
		Short: "Change captured tables under load",
		Long: `Change captured tables with each tool of docs/capture.md while eight writers change their rows.
Exit code 1 if a key is stale afterwards, or a check of a recipe fails.`,
		Example: `  make test-schema-changes
  unstale-lab alter --only 'ALTER, in place' --flavor mariadb`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg.Flavor = servers.Kind(flavor)
			if cfg.Recipes, err = alter.Find(cfg.Flavor, only...); err != nil {
				return usageError{err}
			}
			report, err := alter.Run(cmd.Context(), cfg)
			if report == nil {
				return err
			}
			err = errors.Join(err, show(report, asJSON))
			if n := report.Wrong(); err == nil && n > 0 {
				err = fmt.Errorf("%d recipes failed", n)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Binary, "binary", beside(), "the program under test")
	flags.StringVar(&flavor, "flavor", "", "mysql or mariadb (default: mysql)")
	flags.StringArrayVar(&only, "only", nil, "only this recipe, which may be given several times (default: all)")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}
