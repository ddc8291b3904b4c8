package demo

import (
	"fmt"
	"io"
	"time"
)

// steps prints the steps of the start, one line each: "starting MySQL 9.7.4 ... 0.6 s".
type steps struct{ w io.Writer }

// run runs one step. It prints the note that do returns before the time.
func (s steps) run(name string, do func() (note string, err error)) error {
	fmt.Fprintf(s.w, "%s ... ", name)
	began := time.Now()
	note, err := do()
	if err != nil {
		fmt.Fprintln(s.w, "failed")
		return err
	}
	if note != "" {
		note += ", "
	}
	fmt.Fprintf(s.w, "%s%.1f s\n", note, time.Since(began).Seconds())
	return nil
}
