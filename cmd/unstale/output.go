package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// count writes a number of things: 1 key, 2 keys. The plural is the singular with an s, or given.
func count[N int | int64](n N, singular string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return fmt.Sprint(n, " ", plural[0])
	}
	return fmt.Sprint(n, " ", singular, "s")
}
