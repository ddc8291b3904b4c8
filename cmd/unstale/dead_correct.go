package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// deadCorrection is "unstale dead retry ID --set-entity ... --set-params ...".
type deadCorrection struct {
	entity, params string
	setParams      bool
	mapFile        string
}

// correctFlags are the flags of a correction, which belong to one call.
var correctFlags = []string{"set-entity", "set-params"}

func (c *deadCorrection) add(cmd *cobra.Command, f *deadFlags) {
	flags := cmd.Flags()
	flags.StringVar(&c.entity, "set-entity", "", "of one dead letter: put it back with this entity, if the map takes it")
	flags.StringVar(&c.params, "set-params", "", "of one dead letter: put it back with these parameters, a JSON object, kept byte for byte")
	flags.StringVar(&c.mapFile, "map", "mapping.yaml", "file of the workers' map, for --set-entity and --set-params")
	f.addLookups(flags)
}

// wanted reports whether the call corrects, and refuses one that corrects other than one letter.
func (c *deadCorrection) wanted(cmd *cobra.Command, ids []uint64) (bool, error) {
	if !slices.ContainsFunc(correctFlags, func(name string) bool { return cmd.Flags().Changed(name) }) {
		return false, nil
	}
	c.setParams = cmd.Flags().Changed("set-params")
	if err := refuseEmpty(cmd.Flags(), correctFlags...); err != nil {
		return true, err
	}
	if len(ids) != 1 {
		return true, usageError{errors.New("--set-entity and --set-params correct one dead letter; give its id alone")}
	}
	return true, nil
}

// A judgement is the result of the map for a row: what it invalidates, or why it is refused.
type judgement struct {
	Entity  string       `json:"entity"`
	ID      string       `json:"id"`
	Params  *string      `json:"params"` // exact
	Expands *explanation `json:"expands,omitempty"`
	Refused string       `json:"refused,omitempty"`
}

func (b *deadBulk) doCorrect(ctx context.Context, p process, s *session.Sessions) error {
	m, err := loadMap(p, b.correct.mapFile)
	if err != nil {
		return mapError(err)
	}
	if err := b.correct.checkMap(ctx, p, s, m); err != nil {
		return err
	}
	orders := store.NewOrders(s)
	letters, err := orders.DeadLetters(ctx, b.query, 1)
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return b.missing(nil)
	}
	c := store.Correction{Letter: letters[0], Entity: letters[0].Entity, Params: letters[0].Params}
	if b.correct.entity != "" {
		c.Entity = b.correct.entity
	}
	if b.correct.setParams {
		c.Params = &b.correct.params
	}
	before, _ := judgeRow(ctx, s, m, c.Letter.Entity, c.Letter.EntityID, c.Letter.Params)
	after, refused := judgeRow(ctx, s, m, c.Entity, c.Letter.EntityID, c.Params)
	if refused == nil && !b.dryRun {
		if err := orders.RetryCorrected(ctx, c); err != nil {
			return err
		}
	}
	b.reportCorrection(p, before, after, refused == nil)
	if refused != nil {
		return fmt.Errorf("nothing was done: map %s refuses the row as corrected: %w; correct --set-entity or --set-params, or the map; "+
			"`unstale map explain` tries a row", m.Version(), refused)
	}
	return nil
}

// checkMap refuses a map that no worker uses, since its result would mean nothing.
func (c *deadCorrection) checkMap(ctx context.Context, p process, s *session.Sessions, m *invalidation.Map) error {
	workers, err := store.NewWorkers(s).Workers(ctx)
	var versions []string
	for i := range workers {
		if v := workers[i].MapVersion; workers[i].Lives() && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(p.Err, "whether the workers use this map is unknown: %v\n", err)
	case len(versions) == 0:
		fmt.Fprintln(p.Err, "whether the workers use this map is unknown: none runs")
	case !slices.Contains(versions, m.Version()):
		return fmt.Errorf("nothing was done: %s is version %s of the map, and the workers use %v; give the file that they read with --map, or wait until they have loaded this one",
			c.mapFile, m.Version(), versions)
	}
	return nil
}

// judgeRow asks the map.
func judgeRow(ctx context.Context, s *session.Sessions, m *invalidation.Map, entity, id string, params *string) (judgement, error) {
	j := judgement{Entity: entity, ID: id, Params: params}
	plan, row, err := history.ExpandTexts(ctx, s, m, entity, id, params)
	if err != nil {
		j.Refused = err.Error()
		return j, err
	}
	j.Expands = explain(m, row, plan)
	return j, nil
}

func (b *deadBulk) reportCorrection(p process, before, after judgement, fits bool) {
	done := 0
	if fits {
		done = 1
	}
	if b.json {
		// as report
		_ = output.JSON(p.Out, map[string]any{"dry_run": b.dryRun, b.verb.done: done, "before": before, "after": after})
		return
	}
	for _, side := range []struct {
		name string
		judgement
	}{{"before", before}, {"after", after}} {
		params := ""
		if side.Params != nil {
			params = printable(*side.Params)
		}
		fmt.Fprintf(p.Out, "%-8s %s %s %s\n", side.name, printable(side.Entity), printable(side.ID), params)
		if side.Expands == nil {
			fmt.Fprintf(p.Out, "%-8s %s\n", "refused", printable(side.Refused))
			continue
		}
		side.Expands.print(p)
	}
	if fits {
		b.report(p, done)
	}
}
