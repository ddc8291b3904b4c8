// Package command has what the commands of peers share.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// Parse parses the arguments of a command, which takes flags alone. If the command has nothing to
// do after that, it returns the exit code and true: 0 after --help, which prints about and the
// flags, and 2 after wrong usage.
func Parse(flags *flag.FlagSet, about string, args []string, progress io.Writer) (code int, done bool) {
	flags.SetOutput(progress)
	flags.Usage = func() {
		fmt.Fprint(progress, about)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, true
	case err != nil:
		return 2, true
	case flags.NArg() > 0:
		fmt.Fprintf(progress, "%s: unknown argument %q; see --help\n", flags.Name(), flags.Arg(0))
		return 2, true
	}
	return 0, false
}
