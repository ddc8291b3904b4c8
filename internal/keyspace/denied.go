package keyspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A denial is a NOPERM with the missing rule. Redis reports only the kind of the rule.
type denial struct {
	err  error
	rule string // for ACL SETUSER
}

func (d *denial) Error() string { return fmt.Sprintf("%v; grant the redis user %s", d.err, d.rule) }

func (d *denial) Unwrap() error { return d.err }

// denials is a hook that finds out, from the command that was denied, which rule is missing.
type denials struct{}

func (denials) DialHook(next redis.DialHook) redis.DialHook { return next }

func (denials) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error { return explainDenial(next(ctx, c), c.Args()) }
}

func (denials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, c := range commands {
			if c.Err() != nil {
				c.SetErr(explainDenial(c.Err(), c.Args()))
			}
		}
		return err
	}
}

func explainDenial(err error, args []any) error {
	if known := (*denial)(nil); err == nil || firstWord(err) != "NOPERM" || errors.As(err, &known) {
		return err
	}
	if rule := missingRule(err.Error(), args); rule != "" {
		return &denial{err, rule}
	}
	return err
}

// missingRule returns "" if the rule is unknown.
func missingRule(reply string, args []any) string {
	if _, rest, found := strings.Cut(reply, "permissions to run the '"); found {
		command, _, _ := strings.Cut(rest, "'")
		return "+" + command
	}
	name := deniedName(args)
	switch {
	case name == "":
		return ""
	case strings.Contains(reply, "channel"):
		return "&" + name
	}
	if name == string(WorkersPage) || name == string(SourcesPage) {
		return "~" + name
	}
	for _, prefix := range []string{protocol.LeasePrefix, protocol.HoldPrefix, beaconPrefix, setPrefix, alivePrefix} {
		if strings.HasPrefix(name, prefix) {
			return "~" + prefix + "*"
		}
	}
	return "~" + name
}

// deniedName returns the name that a command is about. UNLINK names a key last, after its lease:
// see unlink. MEMORY USAGE and OBJECT FREQ name one after the second word.
func deniedName(args []any) string {
	if len(args) < 2 {
		return ""
	}
	at := 1
	switch strings.ToLower(fmt.Sprint(args[0])) {
	case "unlink", "memory", "object":
		at = len(args) - 1
	}
	switch name := args[at].(type) {
	case string:
		return name
	case []byte:
		return string(name)
	}
	return ""
}

// explainRefusals finds out of units that were denied whether it is their lease that the account
// may not touch: an UNLINK names both. To unlink a lease alone is harmless.
func (u *Unlinker) explainRefusals(ctx context.Context, refused []refusedUnit) error {
	var denied []int
	var commands []redis.Cmder
	for i, r := range refused {
		if r.lease != "" && firstWord(r.err) == "NOPERM" {
			denied = append(denied, i)
			commands = append(commands, redis.NewIntCmd(ctx, "unlink", r.lease))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	if err := u.nodes.exec(ctx, u.nodes.client, commands); err != nil {
		return err
	}
	for n, i := range denied {
		if err := commands[n].Err(); firstWord(err) == "NOPERM" {
			refused[i].err = err
		}
	}
	return nil
}
