package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
)

const defaultMap = "mapping.yaml"

// withMap returns the flag that names a map in a printed command, unless it is the default.
func withMap(file string) string {
	if file == defaultMap {
		return ""
	}
	return " --map " + output.Shell(file)
}

func loadMap(p process, file string) (*invalidation.Map, error) {
	src, err := invalidation.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return invalidation.Parse(file, src, p.Env)
}

// checkCommand is "unstale map check".
type checkCommand struct {
	json   bool
	sample int64
	redis  redisFlags
	db     mysqlFlags
}

func newMapCheck(p process) *cobra.Command {
	c := &checkCommand{}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a map and report every error",
		Long: `Check a map. The output has every error with its place and fix, or a summary with advice.

If the map has the section reads, the command proves that entities cover it: each read is reached by
a key, pattern, tag or set of an entity, whatever the values, and each of these reaches a read.

With --redis-url the command also reads a sample of the keys, and estimates how many each pattern
matches. With --mysql-dsn it compares the section capture with the tables of the database, and runs
each lookup for up to 20 IDs, together and one by one, which must find the same rows.`,
		Example: `  unstale map check mapping.yaml
  unstale map check mapping.yaml --redis-url redis://cache:6379/0
  unstale map check mapping.yaml --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop'
  APP_ENV=staging unstale map check mapping.yaml --json`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.checkMap(cmd.Context(), p, args[0]) },
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON object")
	cmd.Flags().Int64Var(&c.sample, "sample", 100_000, "how many keys to look at")
	c.redis.addRedisFlags(cmd.Flags())
	c.db.addMySQLFlags(cmd.Flags())
	c.db.addLookups(cmd.Flags())
	withoutEnv(cmd.Flags(), "redis-url", "mysql-dsn") // a check uses a server only if the call requests it
	return cmd
}

func (c *checkCommand) checkMap(ctx context.Context, p process, file string) error {
	m, err := loadMap(p, file)
	faults, ok := errors.AsType[invalidation.Faults](err)
	if err != nil && !ok {
		return err
	}
	if c.sample < 1 {
		return usageError{fmt.Errorf("--sample %d: must be 1 or more", c.sample)}
	}
	var found *estimate
	var tables databaseCheck
	var noEstimate, noTables error // of a server that cannot tell
	if m != nil {
		faults = append(m.Deprecations(), m.Uncovered()...)
		if c.redis.url.text != "" {
			keyspace.SetClientLog(nil)
			found, noEstimate = estimatePatterns(ctx, c.redis, m, c.sample)
		}
		if c.db.dsn.text != "" {
			tables, noTables = checkDatabase(ctx, c.db, file, m)
			faults = append(faults, tables.faults...)
		}
		slices.SortStableFunc(faults, func(a, b invalidation.Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	}
	switch {
	case c.json:
		err = output.JSON(p.Out, checkObject(m, faults, found, tables))
	case len(faults) > 0:
		for _, f := range faults {
			fmt.Fprintln(p.Err, f)
		}
		err = nil
	case noTables == nil: // without Redis the map is still good
		printCheck(p, file, m)
		tables.print(p, file)
		found.print(p)
	}
	var count error
	if len(faults) > 0 {
		count = fmt.Errorf("%s: %s", file, output.Things(len(faults), "fault"))
	}
	return errors.Join(err, noEstimate, noTables, count)
}

// A place is a fault or an advice in JSON.
type place struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Text    string `json:"text"`
	Problem string `json:"problem"`
	Cure    string `json:"cure"`
}

// An askedLookup is how workers ask a lookup, in JSON.
type askedLookup struct {
	Param    string `json:"param"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Together bool   `json:"together"` // for several IDs in one statement
	Reason   string `json:"reason,omitempty"`
}

func places(faults []invalidation.Fault) []place {
	out := make([]place, len(faults))
	for i, f := range faults {
		out[i] = place(f)
	}
	return out
}

func checkObject(m *invalidation.Map, faults invalidation.Faults, found *estimate, tables databaseCheck) any {
	out := struct {
		OK       bool     `json:"ok"`
		Version  string   `json:"version,omitempty"`
		Channel  string   `json:"channel,omitempty"`
		Format   string   `json:"format,omitempty"`
		Lease    string   `json:"lease,omitempty"`
		Entities []string `json:"entities,omitempty"`
		Reads    []string `json:"reads,omitempty"`
		Faults   []place  `json:"faults"`
		Advice   []place  `json:"advice"`

		Keyspace *estimate     `json:"keyspace,omitempty"`
		Lookups  []lookupProof `json:"lookups,omitempty"`
		Asked    []askedLookup `json:"asked,omitempty"`
		Empty    []emptyID     `json:"empty_ids,omitempty"`
	}{OK: len(faults) == 0, Faults: places(faults), Advice: []place{}, Lookups: tables.proofs, Empty: tables.empty}
	if out.OK {
		out.Version, out.Channel, out.Format, out.Lease = m.Version(), m.Channel(), string(m.Format()), m.Lease().String()
		out.Entities, out.Reads, out.Advice = m.Entities(), readNames(m), places(m.Warnings())
		out.Keyspace = found
		for _, l := range m.Lookups() {
			out.Asked = append(out.Asked, askedLookup{l.Param, l.Line, l.Column, !l.Single, l.SingleReason})
		}
	}
	return out
}

func readNames(m *invalidation.Map) (names []string) {
	for _, r := range m.Reads().All() {
		names = append(names, r.Name)
	}
	return names
}

func printCheck(p process, file string, m *invalidation.Map) {
	limits := m.Limits()
	fmt.Fprintf(p.Out, "%s is good: version %s, %s\n", file, m.Version(), output.Things(len(m.Entities()), "entity", "entities"))
	fmt.Fprintf(p.Out, "  entities  %s\n", strings.Join(m.Entities(), ", "))
	if reads := readNames(m); len(reads) > 0 {
		fmt.Fprintf(p.Out, "  reads     %s: entities cover all of them\n", strings.Join(reads, ", "))
	}
	fmt.Fprintf(p.Out, "  publish   %s, format %s\n", m.Channel(), m.Format())
	fmt.Fprintf(p.Out, "  lease     %s\n", m.Lease())
	fmt.Fprintf(p.Out, "  limits    %s of parameters, %s a row, %s of literal prefix in a pattern\n",
		output.Things(limits.ParamsBytes, "byte"), output.Things(limits.KeysPerRow, "key"), output.Things(limits.PatternPrefix, "byte"))
	for _, l := range m.Lookups() {
		fmt.Fprintf(p.Out, "  lookup    %s: %s\n", l.Param, askedFor(l))
	}
	for _, w := range m.Warnings() {
		fmt.Fprintf(p.Out, "advice: %s\n", w)
	}
}

// askedFor describes how workers ask a lookup.
func askedFor(l *invalidation.Lookup) string {
	if l.Single {
		return "asked for one ID at a time: " + l.SingleReason
	}
	return "asked for several IDs together"
}

func newMapSchema(p process) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of maps, for editors",
		Example: "  unstale map schema > mapping.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := p.Out.Write(invalidation.Schema())
			return err
		},
	}
}

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
				err = errors.Join(err, fmt.Errorf("%s: %s of %d failed", args[0], output.Things(report.Failed, "case"), len(report.Cases)))
			}
			if complete && len(report.Untouched) > 0 {
				err = errors.Join(err, fmt.Errorf("%s: no case touches %s of %s; add cases, or leave out --complete",
					args[0], output.Things(len(report.Untouched), "template or entity", "templates or entities"), file))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "map", defaultMap, "the map's file")
	cmd.Flags().BoolVar(&complete, "complete", false, "fail if no case touches a template")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
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
	fmt.Fprintf(p.Out, "%s, %d failed; they touch %d of %s and %d of %s\n", output.Things(len(r.Cases), "case"), r.Failed,
		r.EntitiesTouched, output.Things(r.Entities, "entity", "entities"), r.TemplatesTouched, output.Things(r.Templates, "template"))
	for _, t := range r.Untouched {
		fmt.Fprintf(p.Out, "not touched: %s\n", printable(strings.Join(strings.Fields(t.Entity+" "+t.Kind+" "+t.Text), " ")))
	}
}

// A lookupProof is the result of a comparison of one lookup, in JSON.
type lookupProof struct {
	Param  string `json:"param"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Proven bool   `json:"proven"`
	Says   string `json:"says"`
}

// A databaseCheck holds the faults that a database shows in a map, and the proofs of its lookups.
type databaseCheck struct {
	faults []invalidation.Fault
	proofs []lookupProof
	empty  []emptyID
}

// An emptyID is a capture whose ID may be "", in JSON.
type emptyID struct {
	Table  string `json:"table"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Says   string `json:"says"`
}

// checkDatabase compares a map with the tables of a database. It returns an error if the database
// does not answer.
func checkDatabase(ctx context.Context, f mysqlFlags, file string, m *invalidation.Map) (d databaseCheck, err error) {
	s, err := f.open("map")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	wanted, err := (&capture.Capturer{DB: s.SchemaDB(), Captures: m.Captures()}).Wanted(ctx)
	captures := capture.Faults(err)
	if err != nil && len(captures) == 0 {
		return d, err
	}
	for _, fault := range captures {
		d.faults = append(d.faults, invalidation.Fault{File: file, Line: fault.Line, Column: fault.Column, Text: fault.Table, Problem: fault.Err.Error()})
	}
	if wanted != nil {
		for _, e := range wanted.Empty {
			d.empty = append(d.empty, emptyID{e.Table, e.Line, e.Capture.Column, e.String()})
		}
	}
	return d, d.prove(ctx, s, file, m)
}

// prove runs the lookups of a map.
func (d *databaseCheck) prove(ctx context.Context, s *session.Sessions, file string, m *invalidation.Map) error {
	d.proofs = []lookupProof{}
	for _, l := range m.Lookups() {
		fault := invalidation.Fault{File: file, Line: l.Line, Column: l.Column, Text: l.Param}
		proof, err := doctor.CheckLookup(ctx, s, l)
		switch {
		case err != nil && !doctor.IsLookupFault(err):
			return err
		case err != nil:
			fault.Problem, fault.Cure = "its lookup fails: "+err.Error(), doctor.LookupCure(err)
			d.faults = append(d.faults, fault)
			continue
		case proof.Differs != "":
			fault.Problem, fault.Cure = "its lookup is right for one ID and wrong for several: "+proof.Differs, doctor.CureDiffers
			d.faults = append(d.faults, fault)
		}
		d.proofs = append(d.proofs, lookupProof{l.Param, l.Line, l.Column, proof.Differs == "" && proof.Unproven == "", proof.String()})
	}
	return nil
}

func (d *databaseCheck) print(p process, file string) {
	for _, one := range d.proofs {
		fmt.Fprintf(p.Out, "lookup: %s:%d:%d: %s: %s\n", file, one.Line, one.Column, one.Param, printable(one.Says))
	}
	for _, one := range d.empty {
		fmt.Fprintf(p.Out, "capture: %s:%d:%d: %s: %s\n", file, one.Line, one.Column, one.Table, printable(one.Says))
	}
}
