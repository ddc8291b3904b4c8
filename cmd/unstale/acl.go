package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/worker"
)

// aclCommand is "unstale acl".
type aclCommand struct {
	user, mapFile, wake string
	wait                int
	json                bool
	options             doctor.ACLOptions
}

func newACL(p process) *cobra.Command {
	a := &aclCommand{}
	cmd := &cobra.Command{
		Use:   "acl ROLE",
		Short: "Print the Redis permissions of a role",
		Long: `Print the ACL SETUSER line of an account, without a server. It grants only what the role needs, on
names that the map makes, with * for IDs. It contains no password and keeps those of the account. A
new account has none, and cannot log in until you set one: ACL SETUSER NAME >PASSWORD

Roles:
  worker    unstale run and unstale replay; give the worker's flags too
  reader    package cache, or a reader in another language; with a section reads in the map, on the keys of reads
  limiter   package limit, with --prefix
  locker    package lock, with --prefix
  exporter  redis_exporter -set-client-name=false -config-command=-

Each server has its own accounts: run the line on every node of Sentinel or Redis Cluster. A space,
a quote and a byte outside of ASCII in a name of the map become ?.

Exit codes:
  0  the line is printed
  1  the map has an error
  2  wrong usage`,
		Example: `  unstale acl worker --map mapping.yaml
  unstale acl reader --map mapping.yaml --user shop --report
  unstale acl limiter --prefix shop:limit: --json
  unstale acl locker --cluster`,
		Args: exactArgs("ROLE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.printRules(p, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&a.user, "user", "", "name of the account (default unstale_ROLE)")
	flags.StringVar(&a.mapFile, "map", defaultMap, "the map's file, for worker and reader")
	flags.StringVar(&a.options.Prefix, "prefix", "", "for limiter and locker: prefix of all keys (locker: default lock:)")
	flags.StringVar(&a.wake, "wake-channel", worker.Config{}.WithDefaults().WakeChannel, "for worker: channel of wake-ups; - for none")
	flags.IntVar(&a.wait, "redis-wait", 0, "for worker: replicas that must acknowledge a batch")
	flags.BoolVar(&a.options.Sharded, "redis-sharded-pubsub", false, "for worker: publish with SPUBLISH")
	flags.BoolVar(&a.options.Report, "report", false, "for reader: permit reports of evictions")
	flags.BoolVar(&a.options.Popular, "popular", false, "for reader: permit reports of popular keys")
	flags.BoolVar(&a.options.Shadow, "shadow", false, "for worker and reader: permit reports of shadow reads")
	flags.BoolVar(&a.options.Cluster, "cluster", false, "for Redis Cluster")
	flags.BoolVar(&a.json, "json", false, "print one JSON object")
	return cmd
}

func (a *aclCommand) printRules(p process, name string) (err error) {
	role, o := doctor.ACLRole(name), a.options
	if !slices.Contains(doctor.ACLRoles, role) {
		return usageError{fmt.Errorf("there is no role %q; %s", name, near.DidYouMean(name, roleNames(), "the roles are "+strings.Join(roleNames(), ", ")))}
	}
	user := cmp.Or(a.user, "unstale_"+name)
	if strings.ContainsFunc(user, func(r rune) bool { return r <= ' ' || r > '~' || r == '\'' || r == '"' }) {
		return usageError{fmt.Errorf("--user %q: must be ASCII without spaces and quotes", user)}
	}
	switch role {
	case doctor.Worker, doctor.Reader:
		if o.Map, err = loadMap(p, a.mapFile); err != nil {
			return err
		}
		if a.wake != "-" {
			o.Wake = a.wake
		}
		o.Wait = a.wait > 0
	case doctor.Limiter:
		if o.Prefix == "" {
			return usageError{errors.New("--prefix is missing; for example, --prefix shop:limit: covers all limits whose prefix begins with that")}
		}
	case doctor.Locker:
		o.Prefix = cmp.Or(o.Prefix, "lock:")
		if strings.ContainsAny(o.Prefix, "{}") {
			return usageError{fmt.Errorf("--prefix %q: must not have braces", o.Prefix)}
		}
	}
	if role == doctor.Worker && len(o.Map.Reads().All()) == 0 && slices.ContainsFunc(o.Map.Names(), isSet) {
		fmt.Fprintln(p.Err, "unstale: the map has index sets and no reads, so the names of members are unknown; also grant ~PATTERN for them")
	}
	rules := doctor.ACLRules(role, o)
	if a.json {
		return output.JSON(p.Out, struct {
			Role  doctor.ACLRole `json:"role"`
			User  string         `json:"user"`
			Rules []string       `json:"rules"`
			Line  string         `json:"line"`
		}{role, user, rules, doctor.ACLLine(user, rules)})
	}
	fmt.Fprintln(p.Out, doctor.ACLLine(user, rules))
	return nil
}

func isSet(name invalidation.MapName) bool { return name.Kind == invalidation.KindSet }

func roleNames() (names []string) {
	for _, role := range doctor.ACLRoles {
		names = append(names, string(role))
	}
	return names
}
