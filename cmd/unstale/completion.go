package main

import (
	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// completeValues lets shells complete the values of flags and arguments of a command and of those
// below it: entities of the map, reasons, and other closed sets.
func completeValues(p process, cmd *cobra.Command) {
	values := map[string]cobra.CompletionFunc{
		"entity": p.completeEntity, "set-entity": p.completeEntity, "check": oneOf(checkNames()...),
		"format": oneOf(protocol.FormatEvent, protocol.FormatArray), "lang": oneOf("go"),
		"log-format": oneOf("auto", "text", "json"), "log-level": oneOf("debug", "info", "warn", "error"),
	}
	switch {
	case cmd.Name() == "pause": // its reason is free text
	case cmd.HasParent() && cmd.Parent().Name() == "delayed":
		values["reason"] = oneOf(store.DelayedReasons()...)
	default:
		values["reason"] = oneOf(invalidation.Reasons()...)
	}
	for name, complete := range values {
		if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() != "bool" {
			cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, complete))
		}
	}
	switch cmd.Name() {
	case "acl":
		cmd.ValidArgsFunction = firstArgument(oneOf(doctor.ACLRoles...))
	case "enqueue":
		cmd.ValidArgsFunction = firstArgument(p.completeEntity)
	}
	for _, child := range cmd.Commands() {
		completeValues(p, child)
	}
}

// completeEntity returns the entities of the map that --map or UNSTALE_MAP names. A map that cannot
// be loaded has none.
func (p process) completeEntity(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	file := "mapping.yaml"
	if given, _ := p.Env(envName("map")); given != "" {
		file = given
	}
	if f := cmd.Flags().Lookup("map"); f != nil && f.Changed {
		file = f.Value.String()
	}
	if m, err := loadMap(p, file); err == nil {
		names = m.Entities()
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// oneOf completes a closed set.
func oneOf[T ~string](set ...T) cobra.CompletionFunc {
	var values []string
	for _, value := range set {
		values = append(values, string(value))
	}
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// firstArgument completes the first argument of a command only.
func firstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}
