package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"golang.org/x/term"
)

// onTerminal reports whether what is printed goes to a terminal.
func onTerminal(to io.Writer) bool {
	if out, ok := to.(*output.Writer); ok {
		to = out.To
	}
	file, ok := to.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// checkLimit refuses a --limit that lists nothing.
func checkLimit(limit int) error {
	if limit < 1 {
		return usageError{fmt.Errorf("--limit %d: must be at least 1", limit)}
	}
	return nil
}

// A listing has the flags of a command that lists the first of many rows.
type listing struct {
	mysqlFlags
	limit int
	json  bool
	exact bool // the total, also beyond store.MaxExactCount
}

// addListFlags adds its flags to the command's own.
func (l *listing) addListFlags(flags *pflag.FlagSet) {
	l.mysqlFlags.addMySQLFlags(flags)
	flags.IntVar(&l.limit, "limit", 20, "at most this many")
	flags.BoolVar(&l.json, "json", false, `print one JSON object; a count beyond 10000 is the text ">10000"`)
}

// show reads rows for a command, with how many there are in all, and prints them: as one object, or
// a line each.
func show[Row any](ctx context.Context, p process, l *listing, command string,
	read func(context.Context, *session.Sessions) ([]Row, int, error),
	object func(rows []Row, total int) any, line func(*Row) string, none string,
) error {
	if err := checkLimit(l.limit); err != nil {
		return err
	}
	return l.onSessions(ctx, command, func(s *session.Sessions) error {
		rows, total, err := read(ctx, s)
		if err != nil {
			return err
		}
		if l.json {
			return output.JSON(p.Out, object(rows, total))
		}
		for i := range rows {
			fmt.Fprintln(p.Out, line(&rows[i]))
		}
		switch {
		case total == 0:
			fmt.Fprintln(p.Out, none)
		case total > store.MaxExactCount && !l.exact:
			fmt.Fprintf(p.Out, "and more, beyond %d in all; see --limit\n", store.MaxExactCount)
		case total > len(rows):
			fmt.Fprintf(p.Out, "and %d more; see --limit\n", total-len(rows))
		}
		return nil
	})
}
