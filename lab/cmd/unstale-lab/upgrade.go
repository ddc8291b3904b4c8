package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/upgrade"
)

func newUpgrade() *cobra.Command {
	cfg := upgrade.Config{Progress: os.Stderr}
	asJSON, flavor, oldTree, newTree, stepsTree := false, "", "", "", ""
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Run workers of two releases beside each other",
		Long: `Run workers of two releases on the schema of the newer one, under load. They run beside each other,
replace each other, and are stopped and killed. Exit code 1 if a row is lost or a worker reports an
error. Both are built first. If they have one schema, the new one gets a step more, which only this
command has. "make test-upgrade" gets the old tree from the history.

With --steps, it first checks that the first migration of the new release leaves what the steps before
it left, and that a database with an older version becomes the same.`,
		Example: "  make test-upgrade",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Flavor = servers.Kind(flavor)
			dir, err := os.MkdirTemp("", "unstale-releases-")
			if err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(dir) }()
			if cfg.Old, cfg.New, err = releases(cmd.Context(), oldTree, newTree, dir); err != nil {
				return err
			}
			var wrong []string
			if stepsTree != "" {
				if wrong, err = checkBaseline(cmd.Context(), cfg, stepsTree, newTree, dir); err != nil {
					return err
				}
			}
			report, err := upgrade.Run(cmd.Context(), cfg)
			if report == nil {
				return err
			}
			report.Wrong = append(wrong, report.Wrong...)
			err = errors.Join(err, show(report, asJSON))
			if err == nil && len(report.Wrong) > 0 {
				err = fmt.Errorf("wrong: %d", len(report.Wrong))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&oldTree, "old", "", "directory with the source of the previous release")
	flags.StringVar(&stepsTree, "steps", "", "directory with the source of the last commit with the steps before the baseline")
	flags.StringVar(&newTree, "new", ".", "directory with the source of the present release")
	flags.IntVar(&cfg.Rows, "rows", 1000, "rows committed in each phase, at least")
	flags.StringVar(&flavor, "flavor", "", "database: mysql or mariadb (default mysql, if it can be had)")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

// checkBaseline builds the tree with the steps and the new tree, without the step more, below dir.
func checkBaseline(ctx context.Context, cfg upgrade.Config, steps, fresh, dir string) ([]string, error) {
	fmt.Fprintln(os.Stderr, "upgrade: building the release before the baseline, and comparing what both leave")
	before, err := upgrade.Build(ctx, steps, filepath.Join(dir, "steps"), false)
	if err != nil {
		return nil, err
	}
	after, err := upgrade.Build(ctx, fresh, filepath.Join(dir, "baseline"), false)
	if err != nil {
		return nil, err
	}
	return upgrade.Baseline(ctx, upgrade.BaselineConfig{Steps: before.Program, New: after.Program, Flavor: cfg.Flavor, Progress: cfg.Progress})
}

// releases builds both trees below dir.
func releases(ctx context.Context, oldTree, newTree, dir string) (from, to upgrade.Release, err error) {
	if oldTree == "" {
		return from, to, usageError{errors.New("--old: name the directory of the previous release")}
	}
	have, err := upgrade.SchemaOf(oldTree)
	if err != nil {
		return from, to, err
	}
	known, err := upgrade.SchemaOf(newTree)
	if err != nil {
		return from, to, err
	}
	fmt.Fprintf(os.Stderr, "upgrade: building the old release, schema %d, and the new one, schema %d\n", have, known)
	if from, err = upgrade.Build(ctx, oldTree, filepath.Join(dir, "old"), false); err != nil {
		return from, to, err
	}
	to, err = upgrade.Build(ctx, newTree, filepath.Join(dir, "new"), have == known)
	return from, to, err
}
