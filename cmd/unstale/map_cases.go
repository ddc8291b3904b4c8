package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

func newMapTest(p process) *cobra.Command {
	var (
		file     string
		complete bool
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Run the test cases of a map",
		Long: `Run the test cases of a map. A case has a row, and the keys that it must reach (reaches) and must
not reach (spares), or the reason why the map must refuse it (refused). No server is needed: a case
contains the results of lookups. A key can also be a read of the map: product_page(42). The output
also lists templates that no case covers.

Exit codes:
  0  all cases passed
  1  a case failed or, with --complete, a template is not covered

  cases:
    - name: a product moves to another category
      row: { entity: product, id: 42, params: { category_id: [7, 9] } }
      reaches: ["zahraah:prod:product:42", "zahraah:prod:category:7:list:p1"]
      spares: ["zahraah:prod:product:43"]
    - row: { entity: product, id: 42 }
      lookups: { category_id: 7 }
      reaches: ["zahraah:prod:category:7:list:p1"]
    - row: { entity: planet, id: 1 }
      refused: unknown_entity`,
		Example: `  unstale map test mapping.cases.yaml
  unstale map test mapping.cases.yaml --map mapping.yaml --complete --json`,
		Args: exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			m, err := loadMap(p, file)
			if err != nil {
				return err
			}
			src, err := invalidation.ReadFile(args[0])
			if err != nil {
				return err
			}
			cases, err := maptool.ReadCases(src)
			if err != nil {
				return inFile(args[0], err)
			}
			report := maptool.RunCases(m, cases)
			if asJSON {
				err = output.JSON(p.Out, report)
			} else {
				printCases(p, args[0], report)
			}
			if report.Failed > 0 {
				err = errors.Join(err, fmt.Errorf("%s: %s of %d failed", args[0], count(report.Failed, "case"), len(report.Cases)))
			}
			if complete && len(report.Untouched) > 0 {
				err = errors.Join(err, fmt.Errorf("%s: no case touches %s of %s; add cases, or leave out --complete",
					args[0], count(len(report.Untouched), "template or entity", "templates or entities"), file))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "map", "mapping.yaml", "the map's file")
	cmd.Flags().BoolVar(&complete, "complete", false, "fail if no case touches a template")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	showEnv(cmd.Flags(), "complete", "json")
	return cmd
}

// inFile puts a file's name before each line of an error.
func inFile(file string, err error) error {
	return errors.New(file + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+file+": "))
}

func printCases(p process, file string, r *maptool.CaseReport) {
	for _, c := range r.Cases {
		if len(c.Problems) == 0 {
			fmt.Fprintf(p.Out, "ok    %s\n", printable(c.Name))
			continue
		}
		fmt.Fprintf(p.Out, "FAIL  %s (%s:%d)\n", printable(c.Name), file, c.Line)
		for _, problem := range c.Problems {
			fmt.Fprintf(p.Out, "      %s\n", printable(problem))
		}
	}
	fmt.Fprintf(p.Out, "%s, %d failed; they touch %d of %s and %d of %s\n", count(len(r.Cases), "case"), r.Failed,
		r.EntitiesTouched, count(r.Entities, "entity", "entities"), r.TemplatesTouched, count(r.Templates, "template"))
	for _, t := range r.Untouched {
		fmt.Fprintf(p.Out, "not touched: %s\n", printable(strings.Join(strings.Fields(t.Entity+" "+t.Kind+" "+t.Text), " ")))
	}
}
