package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/near"
)

// envName returns the environment variable of a flag: --mysql-dsn and MYSQL_DSN are one name. Flags
// of this program have the prefix UNSTALE_: another program's MAP or LISTEN must have no effect.
func envName(flag string) string {
	name := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if strings.HasPrefix(name, "MYSQL_") || strings.HasPrefix(name, "REDIS_TLS") || strings.HasPrefix(name, "REDIS_URL") || strings.HasPrefix(name, "REDIS_DB_") {
		return name
	}
	return "UNSTALE_" + name
}

// settings, and flags that begin with one of settingPrefixes, have a variable: many calls have them
// in common. Other flags belong to one call, such as --json.
var (
	settings = strings.Fields("console log-format log-level map definer long-transaction lookup-timeout " +
		"listen worker message-key wake-channel wake-interval idle-interval claim-timeout batch-rows batch-keys " +
		"max-attempts retry-delay journal-retention lock-retention spot-checks sweep-share")
	settingPrefixes = []string{"mysql-", "redis-", "audit-", "console-"}
)

// isSetting reports whether a flag has a variable.
func isSetting(flag string) bool {
	return slices.Contains(settings, flag) ||
		slices.ContainsFunc(settingPrefixes, func(prefix string) bool { return strings.HasPrefix(flag, prefix) })
}

// noEnv marks settings that belong to one call of a command and have no variable there.
const noEnv = "unstale-no-env"

// fromEnv marks flags whose value comes from their variable.
const fromEnv = "unstale-from-env"

// withoutEnv marks flags with noEnv.
func withoutEnv(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		cobra.CheckErr(flags.SetAnnotation(name, noEnv, []string{"true"}))
	}
}

// showEnv adds the names of the variables to the help of each flag of a command.
func showEnv(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if names := envNames(f); names != nil {
			f.Usage += " [" + strings.Join(names, ", ") + "]"
		}
	})
}

// envNames returns the variables of a flag: none if it belongs to one call. A secret also has one
// for a file.
func envNames(f *pflag.Flag) []string {
	if f.Annotations[noEnv] != nil || !isSetting(f.Name) {
		return nil
	}
	name := envName(f.Name)
	if _, ok := f.Value.(*secret); ok {
		return []string{name, name + credentials.SecretSuffix}
	}
	return []string{name}
}

// refuseEmpty refuses flags of a choice that were given without a value, as by "--entity $UNSET" in
// a script: they would choose everything.
func refuseEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		if !f.Changed {
			continue
		}
		switch f.Value.String() {
		case "":
			return usageError{fmt.Errorf("--%s is empty; give it a value, or leave it out", name)}
		case "0s":
			return usageError{fmt.Errorf("--%s is 0; give it a time such as 10m, or leave it out", name)}
		}
	}
	return nil
}

// wanted returns what the value of a flag must be.
func wanted(f *pflag.Flag) string {
	switch kind := f.Value.Type(); kind {
	case "bool":
		return "true or false"
	case "duration":
		return "a time such as 10s or 200ms"
	case "int", "int64":
		return "a number such as 10"
	case "float64":
		return "a number such as 0.25"
	default:
		return "a " + kind
	}
}

// flagError returns the error of a flag on the command line, as a usageError.
func flagError(_ *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid.GetFlag()))
	}
	return usageError{err}
}

// applyEnv gives each flag that was not set the value of its variable, or of the file of a secret.
// An empty variable counts as unset.
func applyEnv(flags *pflag.FlagSet, env func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || envNames(f) == nil {
			return
		}
		name := envName(f.Name)
		if s, ok := f.Value.(*secret); ok {
			text, file, err := credentials.SecretFromEnv(name, env)
			if err != nil {
				errs = append(errs, err)
			}
			if text != "" {
				*s, f.Changed = secret{text, file}, true
				_ = flags.SetAnnotation(f.Name, fromEnv, []string{name}) // the flag exists
			}
			return
		}
		value, _ := env(name)
		if value == "" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("variable %s %q: must be %s", name, value, wanted(f)))
			return
		}
		_ = flags.SetAnnotation(f.Name, fromEnv, []string{name}) // the flag exists
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// foreign matches variables with the prefix of this program that do not belong to it: those of
// tests, and those that Kubernetes sets in every container for a Service whose name begins with
// unstale.
var foreign = regexp.MustCompile(`^UNSTALE_(TEST_.*|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_[0-9]+_.*)?)$`)

// warnVariables lists variables with the prefix of this program that belong to no flag, usually
// because of a misspelling: they have no effect.
func warnVariables(cmd *cobra.Command, p process) error {
	known := []string{"UNSTALE_SERVERS_DIR"} // which package servers reads
	for _, one := range withAllBelow(cmd.Root()) {
		one.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, envNames(f)...) })
	}
	var unknown, meant []string
	for _, pair := range p.Vars() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "UNSTALE_") || slices.Contains(known, name) || foreign.MatchString(name) {
			continue
		}
		unknown = append(unknown, name)
		// more than one letter in three is not a misspelling
		if nearest := near.Within(name, known, min(3, max(1, len(strings.TrimPrefix(name, "UNSTALE_"))/3))); nearest != "" {
			meant = append(meant, nearest)
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
