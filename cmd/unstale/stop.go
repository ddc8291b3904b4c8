package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

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
