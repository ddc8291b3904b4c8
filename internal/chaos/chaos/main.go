// Command chaos runs the fault suite against a program: see package chaos.
//
// Exit codes: 0 nothing is lost, 1 something is or the suite itself failed, 2 wrong usage.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/unstale/unstale/internal/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	cfg := chaos.Config{Progress: os.Stderr}
	flag.StringVar(&cfg.Binary, "binary", "bin/unstale", "the program under test")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "of the schedule; 0: a random one, which is printed")
	flag.IntVar(&cfg.Workers, "workers", 3, "workers side by side")
	flag.IntVar(&cfg.Writers, "writers", 12, "clients of the shop side by side")
	flag.IntVar(&cfg.Proven, "proven", 1_000_000, "go on until this many transactions are proven")
	flag.IntVar(&cfg.Kills, "kills", 300, "and this many workers were killed")
	flag.IntVar(&cfg.Decks, "decks", 20, "and every kind of fault happened this often")
	flag.DurationVar(&cfg.Round, "round", 0, "time between two verdicts (default 20s)")
	asJSON := flag.Bool("json", false, "print the report as one JSON object")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos: unknown argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	report, err := chaos.Run(ctx, cfg)
	if report != nil {
		if *asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(report) // nobody is left to tell
		} else {
			fmt.Print(report)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || len(report.Lost) > 0 {
		os.Exit(1)
	}
}
