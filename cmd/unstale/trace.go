package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// newTrace returns "unstale history --row" under the name that an operator with an ID looks for.
func newTrace(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Show the timeline of a row",
		Long: `Show the timeline of the row with this ID in cache_outbox: when it was written, claimed, unlinked,
published (with the number of receivers) and settled. The output also has processes that report to
have evicted its keys, if there is a Redis to ask, and where the row is now. "partial" marks names of
a row whose lookup had failed. The same as "unstale history --row ID", in text and in JSON.`,
		Example: `  unstale trace 1234
  unstale trace 1234 --json`,
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return usageError{fmt.Errorf("%q is not an ID: must be that of a row in cache_outbox, for example 1234", args[0])}
			}
			h.query.Row = id
			if err := errors.Join(refuseEmpty(cmd.Flags(), "since"), h.check()); err != nil {
				return err
			}
			return h.run(cmd.Context(), p)
		},
	}
	h.redis.add(cmd.Flags())
	h.addCommon(cmd.Flags())
	showEnv(cmd.Flags(), "since", "limit", "json")
	return cmd
}
