package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// historyCommand is "unstale history".
type historyCommand struct {
	mysqlFlags
	query store.JournalQuery
	limit int
	json  bool
}

func newHistory(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show when something was unlinked, and in which batch",
		Long: `Show when the keys of something were unlinked, in which batch, by which worker and with which
version of the map: the newest last. The journal reaches back for --journal-retention of the
workers. A repeat that the map asks for shows as well.`,
		Example: `  unstale history --entity product --id 42
  unstale history --entity product --since 10m --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "entity", "id", "since"); err != nil {
				return err
			}
			return h.run(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	h.add(flags)
	flags.StringVar(&h.query.Entity, "entity", "", "the entity, as rows name it (required)")
	flags.StringVar(&h.query.EntityID, "id", "", "only this id")
	flags.DurationVar(&h.query.Since, "since", 0, "only batches settled within this time (default: all of the journal)")
	flags.IntVar(&h.limit, "limit", 100, "the newest, at most this many")
	flags.BoolVar(&h.json, "json", false, "print one JSON object")
	showEnv(flags, "entity", "id", "since", "limit", "json")
	return cmd
}

// A settlement is one row's entry in the journal, as an object.
type settlement struct {
	SettledAt  time.Time  `json:"settled_at"`
	BornAt     *time.Time `json:"born_at"` // by the clock of Redis, before the first UNLINK; null: not known
	Batch      uint64     `json:"batch"`
	Worker     string     `json:"worker"`
	MapVersion string     `json:"map_version"`
	Row        uint64     `json:"row"`
	Entity     string     `json:"entity"`
	EntityID   string     `json:"entity_id"`
	Trace      string     `json:"trace"`
	Keys       []string   `json:"keys"`
	Patterns   []string   `json:"patterns"`
	Sets       []string   `json:"sets"`
}

func (h *historyCommand) run(ctx context.Context, p process) error {
	switch {
	case h.query.Entity == "":
		return usageError{errors.New("--entity is required: the entity as rows name it, for example: unstale history --entity product --id 42")}
	case h.query.Since < 0:
		return usageError{fmt.Errorf("--since %s: wanted a time that has passed, such as 1h", h.query.Since)}
	case h.limit < 1:
		return usageError{fmt.Errorf("--limit %d: wanted 1 or more", h.limit)}
	}
	store, err := h.open("history")
	if err != nil {
		return err
	}
	found, damaged, total, err := h.read(ctx, store)
	var since *time.Time
	if err == nil && total == 0 {
		since, err = store.JournalStart(ctx)
	}
	if err = errors.Join(orSchema(ctx, store, err), store.Close()); err != nil {
		return err
	}
	if h.json {
		return output.JSON(p.Out, struct {
			Total   int          `json:"total"`
			Found   []settlement `json:"found"`
			Damaged []uint64     `json:"damaged"` // batches that cannot be read
		}{total, found, damaged})
	}
	h.print(p, found, total, since)
	for _, id := range damaged {
		fmt.Fprintf(p.Out, "batch %d of the journal cannot be read, and may have more\n", id)
	}
	return nil
}

// read keeps the newest, and lists the batches that cannot be read.
func (h *historyCommand) read(ctx context.Context, db *store.Store) (found []settlement, damaged []uint64, total int, err error) {
	found, damaged = []settlement{}, []uint64{}
	err = db.ReadJournal(ctx, h.query, func(b store.Batch, entries []store.Entry) error {
		for i := range entries {
			e := &entries[i]
			total++
			found = append(found, settlement{b.SettledAt, b.BornAt(), b.ID, b.Worker, b.MapVersion, e.ID, e.Entity, e.EntityID, e.Trace,
				orNone(e.Keys), orNone(e.Patterns), orNone(e.Sets)})
		}
		if len(found) > 2*h.limit {
			found = slices.Clone(found[len(found)-h.limit:])
		}
		return ctx.Err()
	}, func(b store.DamagedBatch) { damaged = append(damaged, b.ID) })
	return found[max(0, len(found)-h.limit):], damaged, total, err
}

// orNone makes an empty list of nil, for JSON.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (h *historyCommand) print(p process, found []settlement, total int, since *time.Time) {
	switch {
	case total == 0 && since == nil:
		fmt.Fprintln(p.Out, "nothing: the journal is empty")
		return
	case total == 0:
		fmt.Fprintf(p.Out, "nothing; the journal begins at %s\n", since.Format(time.RFC3339))
		return
	case total > len(found):
		fmt.Fprintf(p.Out, "%d older ones are left out; see --limit\n", total-len(found))
	}
	for i := range found {
		s := &found[i]
		row := "scheduled by the application"
		if s.Row != 0 {
			row = fmt.Sprint("row ", s.Row)
		}
		fmt.Fprintf(p.Out, "%s  batch %d  %s  %s %s  worker %s  map %s\n", s.SettledAt.Format(time.RFC3339Nano), s.Batch, row,
			printable(s.Entity), printable(s.EntityID), printable(s.Worker), s.MapVersion)
		if s.Trace != "" {
			fmt.Fprintf(p.Out, "  trace    %s\n", printable(s.Trace))
		}
		printList(p, "key", s.Keys)
		printList(p, "pattern", s.Patterns)
		printList(p, "set", s.Sets)
	}
}

func printList(p process, name string, list []string) {
	for _, text := range list {
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("  %-8s %s", name, printable(text)), " "))
	}
}
