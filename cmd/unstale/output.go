package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/unstale/unstale/internal/output"
)

// onTerminal reports whether what is printed goes to a terminal.
func onTerminal(to io.Writer) bool {
	if out, ok := to.(*output.Writer); ok {
		to = out.To
	}
	file, ok := to.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// count writes a number of things: 1 key, 2 keys. The plural is the singular with an s, or given.
func count[N int | int64 | uint64](n N, singular string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return fmt.Sprint(n, " ", plural[0])
	}
	return fmt.Sprint(n, " ", singular, "s")
}

// checkLimit refuses a --limit that lists nothing.
func checkLimit(limit int) error {
	if limit < 1 {
		return usageError{fmt.Errorf("--limit %d: must be at least 1", limit)}
	}
	return nil
}
