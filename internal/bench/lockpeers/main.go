package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/unstale/unstale/internal/bench"
	"github.com/unstale/unstale/internal/keyspace"
)

const about = `Measure package lock and other libraries that lock, on private servers: with one Redis, with five, and with three ZooKeeper.

A pair is one acquisition and its release of a lock that nobody else wants; all take turns, pair by pair, and medians
are reported. Then waiters in processes of ten, and in processes of one, want a lock that is held, and each releases it
at once: reported are the median from the release to the next acquisition, what clients ask of the servers for it, and the
commands that Redis ran, those within scripts included. ZooKeeper does not sync its log to the disk here. Private servers are started and removed.

Example:
  make bench-locks BENCH='--pairs 500 --json'

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command. It returns its exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	flags := flag.NewFlagSet("lockpeers", flag.ContinueOnError)
	flags.SetOutput(progress)
	o := options{progress: progress}
	flags.IntVar(&o.pairs, "pairs", 5000, "how many pairs each does, 10 to 1,000,000")
	flags.IntVar(&o.waiters, "waiters", 100, "how many wait for a lock, a multiple of ten to 1000")
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.Usage = func() {
		fmt.Fprint(progress, about)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(progress, "lockpeers: unknown argument %q; see --help\n", flags.Arg(0))
		return 2
	case o.pairs < 10 || o.pairs > 1_000_000:
		fmt.Fprintf(progress, "lockpeers: --pairs %d: wanted 10 to 1,000,000\n", o.pairs)
		return 2
	case o.waiters < 10 || o.waiters > 1000 || o.waiters%10 != 0:
		fmt.Fprintf(progress, "lockpeers: --waiters %d: wanted a multiple of ten, to 1000\n", o.waiters)
		return 2
	}
	keyspace.SetClientLog(nil)
	r, err := measure(ctx, o)
	if err == nil {
		err = r.write(out, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(progress, "lockpeers:", err)
		return 1
	}
	return 0
}

// A report is what a run has found.
type report struct {
	Pairs     []pair        `json:"pairs"`
	HandOvers []handOver    `json:"hand_overs"`
	Machine   bench.Machine `json:"machine"`
}

func (r report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	fmt.Fprintf(out, "%-28s %-9s %8s %12s %9s\n", "a pair", "of", "servers", "median", "of best")
	for _, p := range r.Pairs {
		fmt.Fprintf(out, "%-28s %-9s %8d %9.0f µs %9.2f\n", p.Peer, p.Kind, p.Servers, us(p.Median), p.OfBest)
	}
	fmt.Fprintf(out, "%-28s %-9s %8s %12s %9s %9s %9s\n", "hand-overs", "of", "servers", "processes", "median", "requests", "commands")
	for _, h := range r.HandOvers {
		fmt.Fprintf(out, "%-28s %-9s %8d %12d %6.2f ms %9.1f %9.1f\n", h.Peer, h.Kind, h.Servers, h.Processes, us(h.Median)/1000, h.Requests, h.Commands)
	}
	for _, p := range peers() {
		if p.Module != "" {
			fmt.Fprintf(out, "%s: %s, %s\n", p.Name, p.Module, p.Options)
		}
	}
	m := r.Machine
	_, err := fmt.Fprintf(out, "on %s, %d cores, %s, %s, %v\n", m.CPU, m.Cores, m.System, m.Go, m.Servers)
	return err
}
