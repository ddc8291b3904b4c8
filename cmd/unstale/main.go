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
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

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
	_, usage := errors.AsType[usageError](err)
	given, answered := errors.AsType[answer](err)
	switch {
	// a command that has changed something has done so
	case out.Err != nil && (err == nil || answered):
		fmt.Fprintf(p.Err, "unstale: the command has done its work, but what it says about that cannot be written: %v\n", out.Err)
		return exitFail
	case err == nil:
		return exitDone
	case answered:
		if given.line != "" {
			fmt.Fprintf(p.Err, "unstale: %s\n", given.line)
		}
		return given.code
	case usage:
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
	root.AddCommand(newRun(p), newCapture(p), newEnqueue(p), newInvalidate(p), newDead(p), newHistory(p), newTrace(p), newReplay(p), newPause(p),
		newResume(p), newStatus(p), newDoctor(p), newACL(p), newHealth(p), newConfig(p), newVersion(p), newMan(),
		group("migrate", "Create, upgrade or revert the outbox tables", newMigrateUp(p), newMigratePrint(p), newMigrateDown(p), newMigrateStatus(p)),
		group("map", "Draft, check, explain and test maps", newMapCheck(p), newMapExplain(p), newMapTest(p), newMapWho(p), newMapDescribe(p), newMapGenerate(p), newMapSchema(p), newMapDraft(p)),
		group("delayed", "List or retry delayed rows", newDelayedList(p), newDelayedRetry(p)),
		group("audit", "List operators' actions", newAuditList(p)),
		group("source", "Manage copied and restored databases", newSourceReplace(p), newSourceRestored(p)))
	for _, cmd := range withAllBelow(root) {
		completeValues(p, cmd)
		showEnv(cmd)
		if cmd.Args == nil { // it does not say what it takes
			cmd.Args = noArgs
		}
	}
	refuseUnknown(root)
	return root
}

// withAllBelow returns a command and all those below it.
func withAllBelow(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, child := range cmd.Commands() {
		all = append(all, withAllBelow(child)...)
	}
	return all
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
			return usageError{fmt.Errorf("%q takes %s (%v), got %d", cmd.CommandPath(), output.Things(len(names), "argument"), names, len(args))}
		}
		return nil
	}
}

// group returns a command that only holds others. Its examples are the first ones of the others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
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

// A stopper ends the process on SIGINT and SIGTERM. The first one cancels ctx; a command that does
// not end within the grace period is ended, unless it has a step to finish first. The second one
// ends the process immediately. The default actions would not suffice: process 1 of a container has
// none, and neither has SIGINT in a background job of a script.
type stopper struct {
	ctx   context.Context
	first atomic.Int32 // the signal, 0 before it
	how   atomic.Value // of the command that runs: a stopWay
}

// A stopWay is the effect of the first signal on a command, in addition to canceling its context.
type stopWay string

const (
	stopAtOnce  stopWay = ""        // it is ended after the grace
	stopOrderly stopWay = "orderly" // it ends on its own, after the current step
	// the same, and then it has done what it was asked for: its exit code counts
	stopDone stopWay = "done"
)

// stopNote is the annotation of a command that says its stopWay.
const stopNote = "unstale-stop"

// stopGrace is how long a command may take for its last output.
const stopGrace = 500 * time.Millisecond

func listen() *stopper {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stopper{ctx: ctx}
	s.how.Store(stopAtOnce)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := (<-signals).(syscall.Signal)
		s.first.Store(int32(first))
		cancel()
		for grace := time.After(stopGrace); ; {
			select {
			case <-grace:
				if s.how.Load() == stopAtOnce { // it may have come before the command
					fmt.Fprintf(os.Stderr, "unstale: stopped by %s\n", first)
					os.Exit(signalCode(first))
				}
			case second := <-signals:
				os.Exit(signalCode(second.(syscall.Signal)))
			}
		}
	}()
	return s
}

// begin notes which command runs.
func (s *stopper) begin(cmd *cobra.Command) {
	if s == nil {
		return
	}
	for c := cmd; c != nil; c = c.Parent() {
		if how, ok := c.Annotations[stopNote]; ok {
			s.how.Store(stopWay(how))
			return
		}
	}
}

// set changes the effect of the first signal on the running command.
func (s *stopper) set(how stopWay) {
	if s != nil {
		s.how.Store(how)
	}
}

// exitCode returns the exit code of a command that ended with code, or that of the signal that
// ended it.
func (s *stopper) exitCode(code int) int {
	first := syscall.Signal(s.first.Load())
	if first == 0 || code == exitDone || s.how.Load() == stopDone {
		return code
	}
	return signalCode(first)
}

// signalCode returns the exit code that a shell gives to a process that a signal ended.
func signalCode(s syscall.Signal) int { return 128 + int(s) }

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

// versionText returns the release, or what the Go toolchain noted about the build.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersion(p process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  unstale version",
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return output.JSON(p.Out, map[string]string{"version": versionText(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(p.Out, "unstale %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
