package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// newMan returns the hidden command that packages use to generate man pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write a man page for each command", Hidden: true, Args: exactArgs("DIRECTORY"),
		RunE: func(cmd *cobra.Command, args []string) error { return writeManPages(cmd.Root(), args[0]) },
	}
}

// writeManPages writes the page of a command and of the commands below it.
func writeManPages(cmd *cobra.Command, directory string) error {
	if err := os.WriteFile(filepath.Join(directory, manName(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(child, directory); err != nil {
			return err
		}
	}
	return nil
}

// manName returns the name of a command's page, such as unstale-dead-retry.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a command's help in the language of man(7). The same source makes the same page:
// it has no date, and nothing of this machine.
func manPage(cmd *cobra.Command) string {
	var page strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&page, ".SH %s\n%s\n", title, text)
		}
	}
	verbatim := func(text string) string {
		if text == "" {
			return ""
		}
		return ".nf\n" + roff(strings.TrimRight(text, "\n")) + "\n.fi"
	}
	fmt.Fprintf(&page, ".TH %s 1 \"\" \"unstale %s\" \"unstale\"\n.ad l\n.nh\n", roff(strings.ToUpper(manName(cmd))), roff(versionText()))
	section("NAME", roff(manName(cmd))+` \- `+roff(cmd.Short))
	section("SYNOPSIS", ".B "+roff(cmd.UseLine()))
	section("DESCRIPTION", roff(cmd.Long))
	section("OPTIONS", verbatim(cmd.LocalFlags().FlagUsagesWrapped(72)))
	section("EXAMPLES", verbatim(cmd.Example))
	var related []string
	if cmd.HasParent() {
		related = append(related, roff(manName(cmd.Parent())))
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			related = append(related, roff(manName(child)))
		}
	}
	if len(related) > 0 {
		section("SEE ALSO", ".BR "+strings.Join(related, " (1),\n.BR ")+" (1)")
	}
	return page.String()
}

// roff returns text without meaning for man(7). It keeps lines that begin with a space apart.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
