package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/store"
)

// maxReason is how many bytes a pause's reason may have.
const maxReason = 500

func newPause(p process) *cobra.Command {
	var (
		f      mysqlFlags
		reason string
		lasts  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Make all workers stop claiming",
		Long: `Make all workers stop claiming and sweeping within about a second. The batch that they have in
hand is finished, a scan of the keyspace is given up and begins again afterwards. Rows wait,
nothing is lost, and applications notice nothing. Pausing again replaces reason and end.`,
		Example: `  unstale pause --reason 'moving redis' --for 30m
  unstale resume`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "for"); err != nil {
				return err
			}
			if len(reason) > maxReason {
				return usageError{fmt.Errorf("--reason has %d bytes; at most %d, it stands in a line of the log", len(reason), maxReason)}
			}
			if lasts < 0 {
				return usageError{fmt.Errorf("--for %s: wanted a time such as 30m", lasts)}
			}
			store, err := f.open("pause")
			if err != nil {
				return err
			}
			err = store.Pause(cmd.Context(), operator(), reason, lasts)
			if err = errors.Join(orSchema(cmd.Context(), store, err), store.Close()); err != nil {
				return err
			}
			until := "until 'unstale resume'"
			if lasts > 0 {
				until = "for " + lasts.String()
			}
			fmt.Fprintf(p.Out, "all workers pause %s\n", until)
			return nil
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "what for; status and the workers' logs show it")
	cmd.Flags().DurationVar(&lasts, "for", 0, "end by itself after this, such as 30m (default: it does not)")
	showEnv(cmd.Flags(), "reason", "for")
	return cmd
}

// operator says who gives an order.
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
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "Let paused workers go on",
		Example: "  unstale resume",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := f.open("resume")
			if err != nil {
				return err
			}
			was, err := store.Resume(cmd.Context())
			if err = errors.Join(orSchema(cmd.Context(), store, err), store.Close()); err != nil {
				return err
			}
			if was == nil {
				fmt.Fprintln(p.Out, "nothing was paused")
				return nil
			}
			fmt.Fprintf(p.Out, "all workers go on; they were paused %s\n", printable(was.String()))
			return nil
		},
	}
	f.add(cmd.Flags())
	showEnv(cmd.Flags())
	return cmd
}

// A pause is an store.Pause as an object.
type pause struct {
	Who     string     `json:"who"`
	Reason  string     `json:"reason"`
	BeganAt time.Time  `json:"began_at"`
	EndsAt  *time.Time `json:"ends_at"`
	Account string     `json:"account"` // of the database, by the audit; "": it has no record, or this account may not read it
}

func pauseObject(p *store.Pause) *pause {
	if p == nil {
		return nil
	}
	return &pause{p.Who, p.Reason, p.BeganAt, p.EndsAt, p.Account}
}
