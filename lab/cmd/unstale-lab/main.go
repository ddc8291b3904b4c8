// Command unstale-lab starts private servers and shows the work of unstale on them. It runs the
// main job, measures against a floor, runs the fault suite, and checks every read and every
// critical section while servers and processes fail. It is not deployed.
//
// Exit codes: 0 done, 1 failed or a check failed, 2 wrong usage, 130 or 143 ended by SIGINT or
// SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/lab/demo"
)

// A usageError reports that the command line is wrong.
type usageError struct{ error }

func main() {
	if demo.IsTill() {
		os.Exit(demo.RunTill())
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var first atomic.Int32
	// The first signal ends the command, which stops its servers. The second ends the process
	// immediately.
	go func() {
		first.Store(int32((<-signals).(syscall.Signal)))
		cancel()
		os.Exit(128 + int((<-signals).(syscall.Signal)))
	}()
	code := execute(ctx, os.Args[1:])
	if s := int(first.Load()); s != 0 && code != 0 {
		code = 128 + s
	}
	os.Exit(code)
}

// execute runs the command line and returns its exit code. Errors are printed here and nowhere
// else.
func execute(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:           "unstale-lab",
		Short:         "Demonstrate, measure and break unstale on private servers",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newDemo(), newBench(), newChaos(), newVerify(), newVerifyLocks(), newUpgrade(), newForgotten(), newAlter(), newConform(), newConformClient())
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "unstale-lab: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return 2
	}
	fmt.Fprintf(os.Stderr, "unstale-lab: %v\n", err)
	return 1
}

// usage makes errors of cobra's rules for arguments usage errors.
func usage(rule cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := rule(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// beside returns the path of the program unstale in the directory of this one, as short as the
// working directory allows.
func beside() string {
	path, err := os.Executable()
	if err != nil {
		return "unstale"
	}
	path = filepath.Join(filepath.Dir(path), "unstale")
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(short) {
			return short
		}
	}
	return path
}
