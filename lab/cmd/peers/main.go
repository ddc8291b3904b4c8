// Command peers compares unstale with other projects, on private servers that it starts and
// removes.
//
// Exit codes: 0 measured, 1 failed, 2 wrong usage.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/unstale/unstale/lab/peers/caches"
	"github.com/unstale/unstale/lab/peers/locks"
	"github.com/unstale/unstale/lab/peers/outboxes"
)

const about = `Compare unstale with other projects, on private servers.

Usage: peers outboxes|caches|locks [FLAG]...

  outboxes  drain the same rows with watermill-sql and the outbox of oagudo
  caches    put other cache libraries through the same races between a reader and a write
  locks     acquire, release and hand over locks with other lock libraries

Example:
  peers outboxes --runs 1 --json
  peers caches --help
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, progress io.Writer) int {
	commands := map[string]func(ctx context.Context, args []string, out, progress io.Writer) int{
		"outboxes": outboxes.Run, "caches": caches.Run, "locks": locks.Run,
	}
	if len(args) == 0 {
		fmt.Fprint(progress, about)
		return 2
	}
	if command, ok := commands[args[0]]; ok {
		return command(ctx, args[1:], out, progress)
	}
	if args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		fmt.Fprint(out, about)
		return 0
	}
	fmt.Fprintf(progress, "peers: unknown command %q; see peers --help\n", args[0])
	return 2
}
