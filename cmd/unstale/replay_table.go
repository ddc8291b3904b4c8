package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A tableReplay is the JSON of replay --table.
type tableReplay struct {
	DryRun bool `json:"dry_run"`
	capture.Walked
	Patterns []string `json:"patterns"` // match the keys of rows that are no longer in the table
}

// replayTable inserts an outbox row for each row of a table, for writes without triggers.
func (r *replayCommand) replayTable(ctx context.Context, p process) error {
	m, err := loadMap(p, r.mapFile)
	if err != nil {
		return mapError(err)
	}
	db, err := r.mysql.open("replay")
	if err != nil {
		return err
	}
	out, err := r.walk(ctx, p, m, db)
	if err = errors.Join(orSchema(ctx, db, err), db.Close()); out == nil {
		return err
	}
	return r.printTable(p, m, out, err)
}

func (r *replayCommand) walk(ctx context.Context, p process, m *invalidation.Map, db *session.Sessions) (*tableReplay, error) {
	c := &capture.Capturer{DB: db.SchemaDB(), Captures: m.Captures()}
	w, err := c.NewWalk(ctx, db.DB(), r.table)
	if err != nil {
		return nil, err
	}
	out := &tableReplay{DryRun: r.dryRun, Patterns: []string{}}
	var entities []string
	for _, one := range c.Captures {
		if strings.EqualFold(one.Table, r.table) {
			entities = append(entities, one.Entity)
		}
	}
	for _, name := range madeBy(m, entities...) {
		// a pattern would unlink an index set without its members
		if name.Kind != invalidation.KindSet && !slices.Contains(out.Patterns, name.Glob) {
			out.Patterns = append(out.Patterns, name.Glob)
		}
	}
	if r.dryRun {
		if out.Walked, err = w.Estimate(ctx); err != nil {
			return nil, err
		}
		return out, nil
	}
	actions, began := store.NewActions(db), time.Now()
	if err := actions.BeginReplay(ctx, struct {
		Table string `json:"table"`
	}{r.table}); err != nil {
		return nil, err
	}
	note := progress(p, walkText)
	noted := began
	w.Progress = func(ctx context.Context, done capture.Walked) error {
		note(done)
		if time.Since(noted) < progressInterval {
			return nil
		}
		noted = time.Now()
		return actions.NoteReplay(ctx, walkText(done), time.Since(began))
	}
	out.Walked, err = w.Run(ctx)
	ended := struct {
		capture.Walked
		Error string `json:"error,omitempty"`
	}{Walked: out.Walked}
	if err != nil {
		ended.Error = err.Error()
	}
	return out, errors.Join(err, actions.EndReplay(context.WithoutCancel(ctx), ended, int(out.Rows)))
}

// walkText returns how far a replay of a table is.
func walkText(done capture.Walked) string {
	text := fmt.Sprintf("%s of about %s of %s", output.Count(done.Read), output.Things(int(max(done.About, done.Read)), "row"), printable(done.Table))
	if done.Waits {
		text += "; waits for workers, which have enough rows for now"
	}
	return text
}

// printTable prints what was done, even if it did not finish.
func (r *replayCommand) printTable(p process, m *invalidation.Map, out *tableReplay, err error) error {
	switch {
	case r.json:
		// a write error is reported at the end, and does not fail the replay
		_ = output.JSON(p.Out, out)
	case r.dryRun:
		fmt.Fprintf(p.Out, "would read about %s of %s, and insert a row for each\n", output.Things(int(out.About), "row"), printable(out.Table))
	default:
		fmt.Fprintf(p.Out, "inserted %s for %s of %s; workers process them\n",
			output.Things(int(out.Rows), "row"), output.Things(int(out.Read), "row"), printable(out.Table))
	}
	switch {
	case err != nil && out.Faults > 0:
		return fmt.Errorf("%s of the table have no row in the outbox; the first: %w", output.Things(out.Faults, "row"), err)
	case err != nil:
		return fmt.Errorf("replay is not complete, run it again: %w", err)
	case r.json || len(out.Patterns) == 0:
		return nil
	}
	fmt.Fprintln(p.Out, "The table no longer has rows that were deleted and values that were replaced meanwhile. If there were any, run also:")
	for _, pattern := range out.Patterns {
		wide := ""
		if _, err := m.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: pattern}, nil); err != nil {
			wide = " --everything" // the map refuses it otherwise
		}
		fmt.Fprintf(p.Out, "  unstale invalidate --pattern %s%s%s\n", output.Shell(pattern), wide, withMap(r.mapFile))
	}
	return nil
}
