package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

func newAudit(p process) *cobra.Command {
	return group("audit", "List what operators did", newAuditList(p))
}

func newAuditList(p process) *cobra.Command {
	var (
		f      mysqlFlags
		query  store.AuditQuery
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators did, newest first",
		Long: `List what operators did, newest first: dead letters retried and discarded, pauses and their ends,
replays. Each with the time and the database account, which the server itself says, and beside
them the user and the host that ran the command, which it claims.`,
		Example: `  unstale audit list --since 24h
  unstale audit list --action 'dead discard' --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "action", "since"); err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			if actions := store.Actions(); query.Action != "" && !slices.Contains(actions, query.Action) {
				return usageError{fmt.Errorf("--action %q: there is no such action; the actions are '%s'", query.Action, strings.Join(actions, "', '"))}
			}
			if query.Since < 0 {
				return usageError{fmt.Errorf("--since %s: wanted a time that has passed, such as 24h", query.Since)}
			}
			s, err := f.open("audit")
			if err != nil {
				return err
			}
			list, total, err := s.Audit(cmd.Context(), query, limit)
			if err = errors.Join(orSchema(cmd.Context(), s, err), s.Close()); err != nil {
				return err
			}
			if asJSON {
				return output.JSON(p.Out, auditObject(list, total))
			}
			printAudit(p, list, total)
			return nil
		},
	}
	f.add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&query.Action, "action", "", "only this action, such as 'dead discard'; 'dead retry' includes corrections, 'dead retry --set'")
	flags.DurationVar(&query.Since, "since", 0, "only what was done within this time")
	flags.IntVar(&limit, "limit", 20, "at most this many")
	flags.BoolVar(&asJSON, "json", false, `print one JSON object; a count beyond 10000 is the text ">10000"`)
	showEnv(flags, "action", "since", "limit", "json")
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

func printAudit(p process, list []store.AuditRecord, total int) {
	for i := range list {
		r := &list[i]
		fmt.Fprintf(p.Out, "%s  %s (claims to be %s)  %s  %s  %s\n", r.At.Format(time.RFC3339), printable(r.Account),
			printable(r.ClaimedBy), printable(r.Action), count(int64(r.Rows), "row"), printable(r.Arguments))
	}
	switch {
	case total == 0:
		fmt.Fprintln(p.Out, "nothing was done")
	case total > store.MaxExactCount:
		fmt.Fprintf(p.Out, "and more, beyond %d in all; see --limit\n", store.MaxExactCount)
	case total > len(list):
		fmt.Fprintf(p.Out, "and %d more; see --limit\n", total-len(list))
	}
}
