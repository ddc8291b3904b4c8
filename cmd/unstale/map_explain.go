package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// explainCommand is "unstale map explain".
type explainCommand struct {
	mysql   mysqlFlags
	mapFile string
	entity  string
	id      string
	pairs   *[]string
	json    bool
}

func newMapExplain(p process) *cobra.Command {
	e := &explainCommand{}
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what a row would invalidate",
		Long: `Show what a row would invalidate, without a server. If the map looks a parameter up and the call
does not give it, --mysql-dsn runs the lookup; otherwise the output names the missing parameter.
Without --id the output has the templates of the entity, the reads that they reach, and the origins
of their values.`,
		Example: `  unstale map explain --map mapping.yaml --entity product --id 42 --param category_id=7 --param category_id=9
  unstale map explain --entity coupon --id SUMMER --json
  unstale map explain --entity product`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "lookup-timeout", "id"); err != nil {
				return err
			}
			return e.printPlan(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.mapFile, "map", defaultMap, "the map's file")
	flags.StringVar(&e.entity, "entity", "", "the row's entity (required)")
	flags.StringVar(&e.id, "id", "", "the row's id; without it, the entity is described")
	flags.BoolVar(&e.json, "json", false, "print one JSON object")
	e.mysql.addLookups(flags)
	e.pairs = addParams(flags)
	e.mysql.addMySQLFlags(flags)
	return cmd
}

// An explanation is the JSON of explain. The lists are never null.
type explanation struct {
	Entity     string   `json:"entity"`
	ID         string   `json:"id"`
	MapVersion string   `json:"map_version"`
	Keys       []string `json:"keys"`
	Patterns   []string `json:"patterns"`
	Sets       []string `json:"sets"`
	Reads      []string `json:"reads"` // entries of the section reads that these reach
	Repeat     []string `json:"repeat"`
	Hold       string   `json:"hold,omitempty"`
	Ignored    []string `json:"ignored_params"`
	described  invalidation.Description
}

func (e *explainCommand) printPlan(ctx context.Context, p process) error {
	switch {
	case e.entity == "":
		return usageError{errors.New("--entity is required")}
	case e.id == "" && len(*e.pairs) > 0:
		return usageError{errors.New("--param is of a row, which has an --id")}
	}
	params, err := parseParams(*e.pairs)
	if err != nil {
		return err
	}
	m, err := loadMap(p, e.mapFile)
	if err != nil {
		return err
	}
	d, known := m.Describe(e.entity)
	if !known {
		err := fmt.Errorf("%s has no entity %q; %s", e.mapFile, e.entity, near.DidYouMean(e.entity, m.Entities(), "it has "+strings.Join(m.Entities(), ", ")))
		if e.id != "" {
			err = fmt.Errorf("the map refuses this row: %w", &invalidation.RowError{Reason: invalidation.UnknownEntity, Err: err})
		}
		return err
	}
	if e.id == "" {
		return describe(m, d).print(p, e.json)
	}
	row := invalidation.Row{Entity: e.entity, ID: e.id, Params: params}
	plan, err := e.expand(ctx, m, row)
	if err != nil {
		err = fmt.Errorf("the map refuses this row: %w", err)
		for _, name := range m.Undeclared(row) {
			err = fmt.Errorf("%w; %s", err, undeclared(name, d))
		}
		return err
	}
	out := explain(m, row, plan)
	if e.json {
		return output.JSON(p.Out, out)
	}
	out.print(p)
	return nil
}

// undeclared returns a hint for a parameter that is not declared.
func undeclared(name string, d invalidation.Description) string {
	return strings.TrimSuffix("parameter "+printable(name)+" is not declared for "+d.Entity+"; "+near.DidYouMean(name, d.Params, ""), "; ")
}

// explain describes the plan of a row.
func explain(m *invalidation.Map, row invalidation.Row, plan invalidation.Plan) *explanation {
	out := &explanation{
		Entity: row.Entity, ID: row.ID, MapVersion: m.Version(),
		Keys: sorted(plan.Keys), Patterns: sorted(plan.Patterns), Sets: sorted(plan.Sets),
		Reads: readsOf(m, row.Entity, func(glob string) bool {
			g, err := protocol.CompileGlob(glob)
			return err == nil && slices.ContainsFunc(slices.Concat(plan.Keys, plan.Patterns, plan.Sets), g.Match)
		}), Ignored: sorted(m.Undeclared(row)),
	}
	out.described, _ = m.Describe(row.Entity)
	out.Repeat, out.Hold = delays(plan.Repeat, plan.Hold)
	return out
}

// madeBy returns what entities make, and the entities as which they expand, each once.
func madeBy(m *invalidation.Map, entities ...string) (all []invalidation.MapName) {
	for i := 0; i < len(entities); i++ {
		if slices.Contains(entities[:i], entities[i]) {
			continue
		}
		d, _ := m.Describe(entities[i])
		all = append(all, d.Makes...)
		for _, a := range d.As {
			entities = append(entities, a.Entity)
		}
	}
	return all
}

// readsOf returns the reads that the chosen templates of an entity reach, in the order of the map,
// with the entities as which it expands. It chooses templates by their globs.
func readsOf(m *invalidation.Map, entity string, chosen func(glob string) bool) []string {
	reached := map[string]bool{}
	for _, made := range madeBy(m, entity) {
		if chosen(made.Glob) {
			for _, read := range made.Reads {
				reached[read] = true
			}
		}
	}
	list := []string{}
	for _, r := range m.Reads().All() {
		if reached[r.Name] {
			list = append(list, r.Name)
		}
	}
	return list
}

// delays formats them for JSON, as lists that are never null.
func delays(repeat []time.Duration, hold time.Duration) (list []string, held string) {
	list = []string{}
	for _, d := range repeat {
		list = append(list, d.String())
	}
	if hold > 0 {
		held = hold.String()
	}
	return list, held
}

// expand runs lookups only if a server is given.
func (e *explainCommand) expand(ctx context.Context, m *invalidation.Map, row invalidation.Row) (plan invalidation.Plan, err error) {
	if e.mysql.dsn.text == "" {
		if plan, err = m.Expand(row, nil); err != nil {
			if needs, _ := m.Needs(row, nil); len(needs) > 0 {
				err = fmt.Errorf("%w; with --mysql-dsn it is run", err)
			}
		}
		return plan, err
	}
	err = e.mysql.inSessions("explain", func(db *session.Sessions) error {
		plan, err = worker.Expand(ctx, m, session.NewLookups(db).Lookup, row)
		return err
	})
	return plan, err
}

func sorted(list []string) []string {
	out := append([]string{}, list...)
	slices.Sort(out)
	return out
}

// withoutStamps parts keys from tag versions, which it returns as their tags.
func withoutStamps(names []string) (keys, tags []string) {
	for _, name := range names {
		if tag, ok := strings.CutPrefix(name, protocol.StampPrefix); ok {
			tags = append(tags, tag)
		} else {
			keys = append(keys, name)
		}
	}
	return keys, tags
}

func (x explanation) print(p process) {
	keys, tags := withoutStamps(x.Keys)
	for _, part := range []struct {
		name string
		list []string
	}{{"key", keys}, {"stamp", tags}, {"pattern", x.Patterns}, {"set", x.Sets}, {"read", x.Reads}, {"repeat", x.Repeat}} {
		for _, s := range part.list {
			fmt.Fprintf(p.Out, "%-8s %s\n", part.name, printable(s))
		}
	}
	if x.Hold != "" {
		fmt.Fprintf(p.Out, "%-8s %s\n", "hold", x.Hold)
	}
	if len(x.Keys)+len(x.Patterns)+len(x.Sets) == 0 {
		fmt.Fprintln(p.Out, "nothing: this row invalidates no key")
	}
	for _, name := range x.Ignored {
		fmt.Fprintf(p.Out, "ignored  %s\n", undeclared(name, x.described))
	}
}

// printable escapes bytes of a key that could affect a terminal; --json shows the exact bytes.
func printable(s string) string {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\uFFFD' {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}

// An estimate is the number of matches of a map's patterns in a keyspace, from a sample.
type estimate struct {
	Keys     int64             `json:"keys"`
	Sampled  int64             `json:"sampled"`
	Patterns []patternEstimate `json:"patterns"`
}

// A patternEstimate is one pattern's part of it.
type patternEstimate struct {
	Entity  string `json:"entity"`
	Pattern string `json:"pattern"`
	Glob    string `json:"glob"` // with a * for each value
	Matched int64  `json:"matched"`
}

// estimatePatterns asks Redis.
func estimatePatterns(ctx context.Context, f redisFlags, m *invalidation.Map, sample int64) (*estimate, error) {
	redis, err := f.openKeyspace()
	if err != nil {
		return nil, err
	}
	patterns := m.Patterns()
	globs := make([]string, len(patterns))
	for i, p := range patterns {
		globs[i] = p.Glob
	}
	found, err := redis.Contents.Estimate(ctx, globs, sample)
	if err = errors.Join(err, redis.Close()); err != nil {
		return nil, fmt.Errorf("estimate what the patterns match: %w", err)
	}
	e := &estimate{Keys: found.Total, Sampled: found.Sampled, Patterns: []patternEstimate{}}
	for i, p := range patterns {
		e.Patterns = append(e.Patterns, patternEstimate{p.Entity, p.Text, p.Glob, found.Matched[i]})
	}
	return e, nil
}

func (e *estimate) print(p process) {
	if e == nil {
		return
	}
	about := "about "
	if e.Sampled >= e.Keys {
		about = ""
	}
	fmt.Fprintf(p.Out, "keyspace: %s, %d of them looked at\n", output.Things(e.Keys, "key"), min(e.Sampled, e.Keys))
	for _, found := range e.Patterns {
		share := 0.0
		if e.Keys > 0 {
			share = 100 * float64(found.Matched) / float64(e.Keys)
		}
		format := "%.0f %%"
		if share > 0 && share < 10 {
			format = "%.2g %%"
		}
		fmt.Fprintf(p.Out, "  %s%s ("+format+")  %s  %s\n", about, output.Things(found.Matched, "key"), share, printable(found.Entity), printable(found.Pattern))
	}
}
