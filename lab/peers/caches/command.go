package caches

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/bench"
	"github.com/unstale/unstale/lab/peers/command"
)

const about = `Put package cache and other libraries through the same races between a reader and a write, and print who
gives out or keeps an old value. Private servers are started and removed.

Example:
  make bench-cache-peers BENCH=--json

Flags:
`

// Run runs the command and returns its exit code: 0 done, 1 failed or an old value was read through
// package cache, 2 wrong usage.
func Run(ctx context.Context, args []string, out, progress io.Writer) int {
	flags := flag.NewFlagSet("peers caches", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	if code, done := command.Parse(flags, about, args, progress); done {
		return code
	}
	keyspace.SetClientLog(nil)
	r := report{Machine: bench.ThisMachine()}
	var err error
	r.Races, err = runRaces(ctx, "", progress)
	if err == nil {
		err = r.write(out, *asJSON)
	}
	if err == nil {
		err = r.judge()
	}
	if err != nil {
		fmt.Fprintln(progress, "peers caches:", err)
		return 1
	}
	return 0
}

// runRaces runs every race with every peer that fits, one by one, on a database of a flavor.
func runRaces(ctx context.Context, flavor servers.Kind, progress io.Writer) (list []outcome, err error) {
	s, err := openSite(ctx, flavor)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for i, r := range races {
		for j, p := range peers() {
			if !r.fits(p) {
				continue
			}
			fmt.Fprintf(progress, "%s: %s\n", r.Name, p.Name)
			o, err := s.try(ctx, r, p, fmt.Sprintf("%d-%d", i, j))
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.Name, p.Name, err)
			}
			list = append(list, o)
		}
	}
	return list, nil
}

// A report is the result of a run.
type report struct {
	Races   []outcome     `json:"races"`
	Machine bench.Machine `json:"machine"`
}

// judge returns an error if an old value was read through package cache. Old values of other
// libraries are only reported.
func (r report) judge() error {
	ours := map[string]bool{}
	for _, p := range peers() {
		ours[p.Name] = p.Ours
	}
	for _, o := range r.Races {
		if ours[o.Peer] && len(o.Old) > 0 {
			return fmt.Errorf("%s: %s gave out or kept an old value: %v", o.Race, o.Peer, o.Old)
		}
	}
	return nil
}

func (r report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	for _, race := range races {
		first := true
		for _, o := range r.Races {
			if o.Race != race.Name {
				continue
			}
			if first {
				fmt.Fprintf(out, "%s: %s\n", race.Name, race.About)
			}
			first = false
			fmt.Fprintf(out, "  %-30s %s\n", o.Peer, o)
		}
	}
	for _, p := range peers() {
		fmt.Fprintf(out, "%-30s %s: %s\n", p.Name, cmp.Or(strings.Join(p.Modules, ", "), "this checkout"), p.Options)
	}
	m := r.Machine
	_, err := fmt.Fprintf(out, "on %s, %d cores, %s, %s\n", m.CPU, m.Cores, m.System, m.Go)
	return err
}

// String describes where an old value was found, and for how long it stays there.
func (o outcome) String() string {
	if len(o.Old) == 0 {
		return "new"
	}
	text := "old:"
	for i, place := range o.Old {
		if i > 0 {
			text += ","
		}
		text += " " + place
		if place == placeRedis && o.For > 0 {
			text += " " + short(o.For)
		}
		if place == placeMemory && o.Kept > 0 {
			text += " " + short(o.Kept)
		}
	}
	return text
}

func short(d time.Duration) string {
	return fmt.Sprintf("(%.0f min)", d.Minutes())
}
