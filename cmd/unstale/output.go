package main

import (
	"encoding/json"
	"fmt"
	"io"
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

// printJSON writes v as one indented object; keys and patterns stay readable.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
