package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// foreign matches variables with the prefix of this program that do not belong to it: those of
// tests, and those that Kubernetes sets in every container for a Service whose name begins with
// unstale.
var foreign = regexp.MustCompile(`^UNSTALE_(TEST_.*|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_[0-9]+_.*)?)$`)

// warnVariables lists variables with the prefix of this program that belong to no flag, usually
// because of a misspelling: they have no effect.
func warnVariables(cmd *cobra.Command, p process) error {
	known := append(variables(cmd.Root()), "UNSTALE_SERVERS_DIR") // which package servers reads
	var unknown, meant []string
	for _, pair := range p.Vars() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "UNSTALE_") || slices.Contains(known, name) || foreign.MatchString(name) {
			continue
		}
		unknown = append(unknown, name)
		if near := nearest(name, known); near != "" {
			meant = append(meant, near)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	format := logFlags{format: "text", level: "info"}
	if f := cmd.Flags().Lookup("log-format"); f != nil {
		format.format = f.Value.String()
	}
	log, err := format.logger(p)
	if err != nil {
		return err
	}
	log = log.With("names", strings.Join(unknown, " "))
	if len(meant) > 0 {
		log = log.With("nearest", strings.Join(meant, " "))
	}
	log.Warn("unknown variables have no effect")
	return nil
}

// variables returns those of all flags of a command and of those below it.
func variables(cmd *cobra.Command) (all []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		all = append(all, envNames(f)...)
	})
	for _, child := range cmd.Commands() {
		all = append(all, variables(child)...)
	}
	return all
}

// nearest returns the known name with the smallest edit distance to name. It returns "" if that is
// more than three, or than one for every three letters after the prefix: that is not a misspelling.
func nearest(name string, known []string) (best string) {
	least := 1 + min(3, max(1, len(strings.TrimPrefix(name, "UNSTALE_"))/3))
	for _, k := range known {
		if d := changes(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// changes counts the letters to insert, delete or replace that turn a into b.
func changes(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
