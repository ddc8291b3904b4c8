package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

func newAuditList(p process) *cobra.Command {
	var (
		l     listing
		query store.AuditQuery
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List operators' actions, newest first",
		Long: `List operators' actions, newest first: dead letters retried and discarded, pauses, resumes, replays
and invalidations. Each record has the time and the database account, both from the server, and the
user and host that the command sent.`,
		Example: `  unstale audit list --since 24h
  unstale audit list --action 'dead discard' --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "action", "since"); err != nil {
				return err
			}
			if actions := store.ActionNames(); query.Action != "" && !slices.Contains(actions, query.Action) {
				return usageError{fmt.Errorf("--action %q: there is no such action; the actions are '%s'", query.Action, strings.Join(actions, "', '"))}
			}
			if query.Since < 0 {
				return usageError{fmt.Errorf("--since %s: must be a positive duration, for example 24h", query.Since)}
			}
			return show(cmd.Context(), p, &l, "audit", func(ctx context.Context, s *session.Sessions) ([]store.AuditRecord, int, error) {
				return store.NewActions(s).Audit(ctx, query, l.limit)
			}, auditObject, auditLine, "nothing was done")
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query.Action, "action", "", "only this action, such as 'dead discard'; 'dead retry' includes corrections, 'dead retry --set'")
	flags.DurationVar(&query.Since, "since", 0, "only what was done within this time")
	l.addListFlags(flags)
	return cmd
}

// An auditRecord is one action as an object.
type auditRecord struct {
	ID        uint64          `json:"id,string"` // beyond what a double holds
	At        time.Time       `json:"at"`
	Account   string          `json:"account"`
	ClaimedBy string          `json:"claimed_by"`
	Action    string          `json:"action"`
	Arguments json.RawMessage `json:"arguments"`
	Rows      uint64          `json:"rows"`
}

func auditObject(list []store.AuditRecord, total int) any {
	records := make([]auditRecord, len(list))
	for i := range list {
		r := &list[i]
		arguments := json.RawMessage(r.Arguments)
		if !json.Valid(arguments) { // written by hand
			arguments, _ = json.Marshal(r.Arguments) // a text always can be
		}
		records[i] = auditRecord{r.ID, r.At, r.Account, r.ClaimedBy, r.Action, arguments, r.Rows}
	}
	return struct {
		Total any           `json:"total"`
		Audit []auditRecord `json:"audit"`
	}{bounded(total), records}
}

func auditLine(r *store.AuditRecord) string {
	rows := output.Things(int64(r.Rows), "row")
	if r.Action == store.ActionReplay {
		rows = "begins" // its rows are in the record of its end
	}
	return fmt.Sprintf("%s  %s (claims to be %s)  %s  %s  %s", r.At.Format(time.RFC3339), printable(r.Account),
		printable(r.ClaimedBy), printable(r.Action), rows, printable(r.Arguments))
}
