package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// A deadVerb does something with many dead letters.
type deadVerb struct {
	name, done           string
	short, long, example string
	run                  func(*store.Orders, context.Context, store.DeadQuery, func(total int)) ([]uint64, error)
	corrects             bool // it can also correct one letter
}

// deadBulk is "unstale dead retry" and "unstale dead discard".
type deadBulk struct {
	deadFlags
	verb     deadVerb
	correct  deadCorrection
	corrects bool // one letter, by doCorrect
	all      bool
	dryRun   bool
}

func newDeadBulk(p process, verb deadVerb) *cobra.Command {
	b := &deadBulk{verb: verb}
	cmd := &cobra.Command{
		Use: verb.name + " [ID...]", Short: verb.short, Long: verb.long, Example: verb.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.choose(cmd, args); err != nil {
				return err
			}
			do := b.do
			if b.corrects {
				do = b.doCorrect
			}
			return b.with(cmd.Context(), func(s *session.Sessions) error { return do(cmd.Context(), p, s) })
		},
	}
	flags := cmd.Flags()
	b.add(flags)
	flags.BoolVar(&b.all, "all", false, "all dead letters")
	flags.BoolVar(&b.dryRun, "dry-run", false, "count, do nothing")
	perCall := append([]string{"all", "dry-run", "json"}, filterFlags...)
	if verb.corrects {
		b.correct.add(cmd, &b.deadFlags)
		perCall = append(perCall, correctFlags...)
	}
	showEnv(flags, perCall...)
	return cmd
}

// choose refuses a call that does not select letters.
func (b *deadBulk) choose(cmd *cobra.Command, args []string) error {
	if err := b.check(cmd.Flags()); err != nil {
		return err
	}
	ids, err := parseIDs(args)
	if err != nil {
		return err
	}
	b.query.IDs = ids
	if b.verb.corrects {
		if b.corrects, err = b.correct.wanted(cmd, ids); err != nil {
			return err
		}
	}
	switch filtered := b.filtered(cmd.Flags()); {
	case b.corrects && (b.all || filtered):
		return usageError{errors.New("--set-entity and --set-params correct one dead letter; give its id alone")}
	case b.all && (len(ids) > 0 || filtered):
		return usageError{errors.New("--all and a choice; give one of them")}
	case !b.all && len(ids) == 0 && !filtered:
		return usageError{errors.New("which ones? give ids, a filter such as --reason unknown_entity, or --all")}
	}
	return nil
}

func (b *deadBulk) do(ctx context.Context, p process, s *session.Sessions) error {
	var done []uint64
	var err error
	if b.dryRun {
		return b.count(ctx, p, s)
	}
	said := time.Now()
	done, err = b.verb.run(store.NewOrders(s), ctx, b.query, func(total int) {
		if time.Since(said) >= progressInterval {
			said = time.Now()
			fmt.Fprintf(p.Err, "%s %d\n", b.verb.done, total)
		}
	})
	b.report(p, len(done)) // what was done is told in any case
	if err != nil {
		return err
	}
	return b.missing(done)
}

// count prints how many letters there are.
func (b *deadBulk) count(ctx context.Context, p process, s *session.Sessions) error {
	n, _, err := store.NewOrders(s).CountDead(ctx, b.query)
	if err != nil {
		return err
	}
	if b.report(p, n); n == len(b.query.IDs) {
		return nil
	}
	letters, err := store.NewOrders(s).DeadLetters(ctx, store.DeadQuery{IDs: b.query.IDs}, len(b.query.IDs))
	if err != nil || len(b.query.IDs) == 0 {
		return err
	}
	var there []uint64
	for i := range letters {
		there = append(there, letters[i].ID)
	}
	return b.missing(there)
}

// report prints how many letters it was done to. A write error is reported at the end, and does not
// fail the action.
func (b *deadBulk) report(p process, n int) {
	if b.json {
		_ = output.JSON(p.Out, map[string]any{"dry_run": b.dryRun, b.verb.done: n})
		return
	}
	would := ""
	if b.dryRun {
		would = "would have "
	}
	fmt.Fprintf(p.Out, "%s%s %s\n", would, b.verb.done, count(n, "dead letter"))
}

// missing returns an error about requested IDs that do not exist, or that the filter leaves out.
func (b *deadBulk) missing(done []uint64) error {
	var missing []uint64
	for _, id := range b.query.IDs {
		if !slices.Contains(done, id) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("there is no such dead letter: %d", missing)
	}
	return nil
}
