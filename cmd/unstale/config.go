package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/worker"
)

// A setting is one flag of "unstale run" as it takes effect.
type setting struct {
	Flag     string `json:"flag"`
	Variable string `json:"variable"`
	Value    string `json:"value"`          // of a secret what is not secret
	From     string `json:"from"`           // flag, variable, file or default
	File     string `json:"file,omitempty"` // that the value of a secret comes from
}

func newConfig(p process) *cobra.Command {
	r := &runCommand{worker: worker.Config{}.WithDefaults()}
	asJSON := false
	var unread error
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the settings of a worker",
		Long: `Print the settings that "unstale run" with the same flags and variables has, without secrets, and
where each comes from: a flag, a variable, the file of a secret, or the default. It neither reads the
map nor connects to a server.

Exit codes:
  0  the settings are valid
  2  one is missing or invalid; the others are printed, with the default for a variable that cannot
     be read`,
		Example: `  unstale config
  unstale config --json --map mapping.yaml`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			p.Stop.begin(cmd)
			unread = errors.Join(applyEnv(cmd.Flags(), p.Env), warnVariables(cmd, p)) // the others are printed
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, invalid := r.complete(cmd.Flags(), p)
			if unread != nil { // then an error may be about the default
				invalid = unread
			}
			settings := r.settings(cmd.Flags())
			if asJSON {
				return cmp.Or(output.JSON(p.Out, settings), invalid)
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
			for _, s := range settings {
				from := cmp.Or(map[string]string{"variable": s.Variable, "file": strings.TrimSpace("file " + s.File)}[s.From], s.From)
				fmt.Fprintf(w, "--%s\t%s\t%s\n", s.Flag, printable(s.Value), printable(from))
			}
			return cmp.Or(w.Flush(), invalid)
		},
	}
	r.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

// settings returns those of all flags that have a variable, after complete.
func (r *runCommand) settings(flags *pflag.FlagSet) (all []setting) {
	shown := map[string]string{}
	if r.worker.MySQL != nil {
		shown["mysql-dsn"] = redacted(r.worker.MySQL)
	}
	if r.worker.Redis != nil {
		shown["redis-url"] = keyspace.Options{Redis: r.worker.Redis}.Redacted()
	}
	if c := r.page.config; c.MySQL != nil {
		shown["console-dsn"] = redacted(c.MySQL)
	}
	if c := r.page.config; c.Redis != nil {
		shown["console-redis-url"] = keyspace.Options{Redis: c.Redis}.Redacted()
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if envNames(f) == nil {
			return
		}
		s := setting{Flag: f.Name, Variable: envName(f.Name), Value: f.Value.String(), From: "default"}
		switch {
		case f.Annotations[fromEnv] != nil:
			s.From = "variable"
		case f.Changed:
			s.From = "flag"
		}
		if v, ok := f.Value.(*secret); ok {
			if s.Value = shown[f.Name]; s.Value == "" && v.text != "" {
				s.Value = "(given)"
			}
			if s.File = v.file; v.file != "" {
				s.From = "file"
			}
		}
		all = append(all, s)
	})
	return all
}
