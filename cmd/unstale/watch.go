package main

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// drawAgain puts the cursor of a terminal into the corner and clears the rest.
const drawAgain = "\x1b[H\x1b[2J"

// watching looks repeatedly until ctx ends. An error means unknown, and it continues: an operator
// may be watching an outage of MySQL.
func (c *statusCommand) watching(ctx context.Context, p process, s *session.Sessions) error {
	p.Stop.set(stopDone)
	page := !c.json && onTerminal(p.Out)
	for {
		st, v, err := c.looker.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := c.show(p, st, v, orSchema(ctx, s, err), page); err != nil {
			return err
		}
		if sleep.For(ctx, c.watch) != nil {
			return nil
		}
	}
}

// show writes one look.
func (c *statusCommand) show(p process, st store.Status, v status.Verdict, failed error, page bool) error {
	now := time.Now().UTC()
	if failed != nil {
		v = status.Unread(failed)
	}
	var err error
	switch {
	case c.json && failed != nil:
		return output.JSONLine(p.Out, newVerdictObject(v))
	case c.json:
		return output.JSONLine(p.Out, statusObject(st, v))
	case page:
		fmt.Fprint(p.Out, drawAgain)
		printVerdict(p, v)
		if failed == nil {
			printStatus(p, st)
		}
	default:
		_, err = fmt.Fprintf(p.Out, "%s  %s\n", now.Format(time.RFC3339), printable(v.String()))
	}
	return err
}
