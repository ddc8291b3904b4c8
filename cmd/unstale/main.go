// Command unstale invalidates Redis keys when MySQL rows change: it processes committed
// invalidation rows, migrates the outbox, checks and explains maps, and shows rows that wait.
//
// Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 or 143 ended by SIGINT or SIGTERM;
// "status" also 3 something is stale, 4 unknown; "doctor" also 3 warnings; "invalidate" also 3 it
// still waits.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
)

func main() {
	s := listen()
	os.Exit(s.exitCode(execute(s.ctx, process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Vars: os.Environ, Stop: s})))
}

// A process is the environment of a command, so that tests can replace it.
type process struct {
	Args []string
	Out  io.Writer
	Err  io.Writer
	Env  func(string) (string, bool)
	Vars func() []string // all of Env, as os.Environ
	Stop *stopper        // nil in tests
}

// Exit codes.
const (
	exitDone  = 0
	exitFail  = 1
	exitUsage = 2
)

// A usageError is an error of the command line, or of the variable of a flag.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// An answer is an exit code of a command that has done its work, with a last line where it has not
// said all.
type answer struct {
	code int
	line string
}

// Error implements error.
func (a answer) Error() string { return a.line }

// execute runs the command line and returns its exit code. Errors are printed here and nowhere
// else.
func execute(ctx context.Context, p process) int {
	out := &output.Writer{To: p.Out}
	p.Out = out
	root := newRoot(p)
	root.SetArgs(p.Args)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	var given answer
	switch {
	// a command that has changed something has done so
	case out.Err != nil && (err == nil || errors.As(err, &given)):
		fmt.Fprintf(p.Err, "unstale: the command has done its work, but what it says about that cannot be written: %v\n", out.Err)
		return exitFail
	case err == nil:
		return exitDone
	case errors.As(err, &given):
		if given.line != "" {
			fmt.Fprintf(p.Err, "unstale: %s\n", given.line)
		}
		return given.code
	case errors.As(err, &usage):
		fmt.Fprintf(p.Err, "unstale: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(p.Err, "unstale: %v\n", err)
		return exitFail
	}
}

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "unstale",
		Short: "Invalidate Redis keys when MySQL rows change",
		Long: `unstale invalidates Redis keys when MySQL rows change. An application inserts an invalidation row
in the transaction of its write; "unstale run" claims committed rows, expands them through
mapping.yaml into keys, UNLINKs the keys and publishes them.

Every flag has an environment variable, shown next to it. A flag takes precedence over its
variable, and the variable over the default.`,
		Example: `  unstale migrate up --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop'
  unstale map check mapping.yaml
  unstale run --map mapping.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			p.Stop.begin(cmd)
			if err := applyEnv(cmd.Flags(), p.Env); err != nil {
				return err
			}
			return warnVariables(cmd, p)
		},
	}
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(p), newMigrate(p), newMap(p), newCapture(p), newEnqueue(p), newInvalidate(p), newDelayed(p), newDead(p), newHistory(p), newTrace(p), newReplay(p), newAudit(p), newPause(p), newResume(p), newSource(p), newStatus(p), newDoctor(p), newACL(p), newHealth(p), newConfig(p), newVersion(p), newMan())
	completeValues(p, root)
	refuseUnknown(root)
	return root
}

// refuseUnknown makes cobra's own commands refuse names that do not exist. Otherwise they print a
// help text, which a shell would write into a file of completions, and exit with 0.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usageError{fmt.Errorf("%q has no command %q", found.CommandPath(), strings.Join(rest, " "))}
				}
				return nil
			}
		case "completion":
			cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		}
	}
}

// noArgs and exactArgs are cobra's rules as usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		hint := ""
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", cmd.CommandPath()+" "+near[0])
		}
		return usageError{fmt.Errorf("unknown argument %q for %q%s", args[0], cmd.CommandPath(), hint)}
	}
	return nil
}

func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usageError{fmt.Errorf("%q takes %s (%v), got %d", cmd.CommandPath(), count(len(names), "argument"), names, len(args))}
		}
		return nil
	}
}

// group returns a command that only holds others. Its examples are the first ones of the others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	var examples []string
	for _, child := range children {
		if first, _, _ := strings.Cut(child.Example, "\n"); first != "" {
			examples = append(examples, first)
		}
	}
	cmd.Example = strings.Join(examples, "\n")
	return cmd
}
