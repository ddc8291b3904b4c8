package locks

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/lab/bench"
	"github.com/unstale/unstale/lab/peers/command"
)

const about = `Measure package lock and other libraries that lock, on private servers: with one Redis, with five, and with three ZooKeeper.

A pair is one acquisition and one release of an uncontended lock. The libraries alternate, pair by
pair, and the report has medians. Then waiters in processes of ten, and in processes of one, wait for
a lock that is held. Each releases it immediately. The report has the median time from a release to
the next acquisition, the requests of the clients, and the commands that Redis ran, including those
in scripts. Then half as many waiters, in processes of five and of one, take turns: each has the
lock for 2 ms and waits again, until together they have had it half as often as --pairs. The report
has how often the median waiter got it, and which part of that the slowest one got. ZooKeeper does
not sync its log to disk here. Private servers are started and removed.

Example:
  make bench-locks BENCH='--pairs 500 --json'

Flags:
`

// Run runs the command and returns its exit code: 0 measured, 1 failed, 2 wrong usage.
func Run(ctx context.Context, args []string, out, progress io.Writer) int {
	flags := flag.NewFlagSet("peers locks", flag.ContinueOnError)
	o := options{progress: progress}
	flags.IntVar(&o.pairs, "pairs", 5000, "how many pairs each does, 10 to 1,000,000")
	flags.IntVar(&o.waiters, "waiters", 100, "how many wait for a lock, a multiple of ten to 1000")
	asJSON := flags.Bool("json", false, "print one JSON object")
	if code, done := command.Parse(flags, about, args, progress); done {
		return code
	}
	switch {
	case o.pairs < 10 || o.pairs > 1_000_000:
		fmt.Fprintf(progress, "peers locks: --pairs %d: must be 10 to 1,000,000\n", o.pairs)
		return 2
	case o.waiters < 10 || o.waiters > 1000 || o.waiters%10 != 0:
		fmt.Fprintf(progress, "peers locks: --waiters %d: must be a multiple of ten, at most 1000\n", o.waiters)
		return 2
	}
	keyspace.SetClientLog(nil)
	r, err := measure(ctx, o)
	if err == nil {
		err = r.write(out, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(progress, "peers locks:", err)
		return 1
	}
	return 0
}

// A report is the result of a run.
type report struct {
	Pairs     []pair        `json:"pairs"`
	HandOvers []handOver    `json:"hand_overs"`
	Turns     []handOver    `json:"turns"`
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
	fmt.Fprintf(out, "%-28s %-9s %8s %12s %9s %9s %9s\n", "turns", "of", "servers", "processes", "median", "each", "least")
	for _, h := range r.Turns {
		fmt.Fprintf(out, "%-28s %-9s %8d %12d %6.2f ms %9.0f %9.2f\n", h.Peer, h.Kind, h.Servers, h.Processes, us(h.Median)/1000, h.Each, h.Least)
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
