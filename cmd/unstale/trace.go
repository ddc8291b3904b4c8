package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// newTrace is "unstale history --row" under the name that one looks for with an id in hand.
func newTrace(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Show the journey of one row, and where it is now",
		Long: `Show the journey of the row with this id in cache_outbox: when it was written, claimed, unlinked,
published and to how many receivers, and settled; which processes report to have evicted it, if
there is a Redis to ask; and where it is now, if it still waits, is delayed or is dead. The same
as "unstale history --row ID", in text and in JSON.`,
		Example: `  unstale trace 1234
  unstale trace 1234 --json`,
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return usageError{fmt.Errorf("%q is not an id: wanted that of a row in cache_outbox, such as 1234", args[0])}
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
