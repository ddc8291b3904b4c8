package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

func newPause(p process) *cobra.Command {
	var (
		f                    mysqlFlags
		reason               string
		lasts                time.Duration
		untilResumed, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Make all workers stop claiming",
		Long: `Make all workers stop claiming and sweeping within about a second. They finish their current batch. A
scan of the keyspace stops and restarts afterwards. Rows wait, nothing is lost, and applications are
not affected. Pausing again replaces reason and end.`,
		Example: `  unstale pause --reason 'moving redis' --for 30m
  unstale pause --until-resumed
  unstale resume`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "for"); err != nil {
				return err
			}
			if len(reason) > store.MaxReason {
				return usageError{fmt.Errorf("--reason has %d bytes; at most %d, it is part of a log line", len(reason), store.MaxReason)}
			}
			if lasts < 0 {
				return usageError{fmt.Errorf("--for %s: must be a positive duration, for example 30m", lasts)}
			}
			if untilResumed == (lasts > 0) {
				return usageError{errors.New("how long? give either --for, for example --for 30m, or --until-resumed")}
			}
			return f.onSessions(cmd.Context(), "pause", func(s *session.Sessions) error {
				acts := store.NewActions(s)
				if err := acts.Pause(cmd.Context(), store.AnyPause, reason, lasts); err != nil {
					return err
				}
				switch {
				case asJSON:
					now, err := acts.Paused(cmd.Context())
					if err != nil {
						return err
					}
					return output.JSON(p.Out, map[string]any{"pause": now})
				case lasts > 0:
					fmt.Fprintf(p.Out, "all workers pause for %s\n", lasts)
				default:
					fmt.Fprintln(p.Out, "all workers pause until 'unstale resume'")
				}
				return nil
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "what for; status and the workers' logs show it")
	cmd.Flags().DurationVar(&lasts, "for", 0, "end of the pause, after this duration")
	cmd.Flags().BoolVar(&untilResumed, "until-resumed", false, "no end: until 'unstale resume'")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// operator returns the name of the user who runs the command.
func operator() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name[:min(len(name), 255)]
}

func newResume(p process) *cobra.Command {
	var f mysqlFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "Resume paused workers",
		Example: "  unstale resume",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.onSessions(cmd.Context(), "resume", func(s *session.Sessions) error {
				was, err := store.NewActions(s).Resume(cmd.Context(), store.AnyPause)
				switch {
				case err != nil:
					return err
				case asJSON:
					return output.JSON(p.Out, map[string]any{"ended": was})
				case was == nil:
					fmt.Fprintln(p.Out, "nothing was paused")
				default:
					fmt.Fprintf(p.Out, "all workers resume; they were paused %s\n", printable(was.String()))
				}
				return nil
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
