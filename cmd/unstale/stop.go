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

// A stopper ends the process on SIGINT and SIGTERM. The first one cancels ctx; a command that does not end by that
// within the grace is ended, unless it has a step to finish first. The second one ends the process at once. Their
// default effect would not do: there is none for process 1 of a container, nor for SIGINT in a job that a script runs
// in the background.
type stopper struct {
	ctx   context.Context
	first atomic.Int32 // the signal, 0 before it
	how   atomic.Value // of the command that runs: a stopWay
}

// A stopWay says what the first signal does to a command, beyond cancelling what it does.
type stopWay string

const (
	stopAtOnce  stopWay = ""        // it is ended after the grace
	stopOrderly stopWay = "orderly" // it ends by itself: a step is to be finished
	stopDone    stopWay = "done"    // the same, and then it has done what it was asked for: its exit code counts
)

// stopNote is the annotation of a command that says its stopWay.
const stopNote = "unstale-stop"

// stopGrace is how long a command has for what it still wants to say.
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
		var grace <-chan time.Time
		if s.how.Load() == stopAtOnce {
			grace = time.After(stopGrace)
		}
		select {
		case <-grace:
			fmt.Fprintf(os.Stderr, "unstale: stopped by %s\n", first)
			os.Exit(signalCode(first))
		case second := <-signals:
			os.Exit(signalCode(second.(syscall.Signal)))
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

// set says what the first signal does to the command that runs, for one that does not always do the same.
func (s *stopper) set(how stopWay) {
	if s != nil {
		s.how.Store(how)
	}
}

// exitCode is that of a command which ended with code: one that was cut off by a signal says so.
func (s *stopper) exitCode(code int) int {
	first := syscall.Signal(s.first.Load())
	if first == 0 || code == exitDone || s.how.Load() == stopDone {
		return code
	}
	return signalCode(first)
}

// signalCode is the exit code that a shell gives to a process that a signal ended.
func signalCode(s syscall.Signal) int { return 128 + int(s) }
