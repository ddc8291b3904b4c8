package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/worker"
)

// exitWarning is doctor's exit code where the worst finding is a warning, or unknown with --strict.
const exitWarning = 3

// doctorCommand is "unstale doctor".
type doctorCommand struct {
	mysql      mysqlFlags
	redis      redisFlags
	auditMySQL secret
	auditRedis secret
	state      secret
	mapFile    string
	wake       string
	wait       int
	definer    string
	long       time.Duration
	checks     []string
	keys       bool
	prove      bool
	sample     int64
	markdown   bool
	noNames    bool
	strict     bool
	json       bool
}

func newDoctor(p process) *cobra.Command {
	d := &doctorCommand{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check privileges, settings, map, clocks and servers",
		Long: `Check an installation, before a deployment or from cron. Each finding has a severity (ok, info,
unknown, warning, critical), the observation, and the fix. The command changes nothing. A check
that it cannot make is unknown, and never ok.

With the worker's flags it tries every privilege of a worker, on no row and on made-up names, and
compares settings, tables, map and clocks. With accounts for an audit it checks the servers, and
with --redis-url-state the Redis of sessions, limits and locks:

` + indented(auditHelp) + `
In Redis Cluster each of these, and the one for --keys, needs ` + doctor.ClusterRules + ` as well.

With --keys it reviews the keys of the cache instead, by one scan that takes no more than a quarter of
Redis' time: keys without a time to live, large values, names, the biggest and the most used families,
what no entity of the map reaches, and keys that live for more than a day. It goes by
--audit-redis-url if that is given, else by --redis-url. Ctrl-C prints what was seen. The account needs

  +info +scan +dbsize +pttl +memory|usage +type +object|freq +object|idletime %R~*

With --prove it tries on these servers what unstale relies on, and prints a report without hosts,
accounts or passwords. It writes only to the database of --mysql-dsn, which must have no table, and to
keys that begin with unstale-prove: or unstale:beacon:, and removes what it made.

Exit codes: 0 nothing worse than unknown, 3 a warning (with --strict: something unknown), 1 critical.`,
		Example: `  unstale doctor --map mapping.yaml
  unstale doctor --audit-mysql-dsn 'unstale_audit:secret@tcp(db:3306)/shop' --audit-redis-url redis://unstale_audit:secret@cache:6379/0
  unstale doctor --strict --json
  unstale doctor --keys --map mapping.yaml --markdown > review.md
  unstale doctor --prove --mysql-dsn 'unstale:secret@tcp(db:3306)/unstale_scratch' --redis-url redis://cache:6379/0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keyspace.SetClientLog(nil)
			if d.prove {
				p.Stop.set(stopOrderly) // what was made is removed
				return d.proof(cmd.Context(), p)
			}
			if d.keys {
				p.Stop.set(stopOrderly) // what was seen is printed
				return d.review(cmd.Context(), p)
			}
			return d.examine(cmd.Context(), p)
		},
	}
	d.addFlags(cmd.Flags())
	return cmd
}

// auditHelp shows how to create the accounts; a test runs it.
const auditHelp = `MySQL:
  CREATE USER 'unstale_audit'@'%' IDENTIFIED BY 'change me 6';
  GRANT PROCESS, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO 'unstale_audit'@'%';
  GRANT SELECT, TRIGGER ON shop.* TO 'unstale_audit'@'%';
  GRANT SELECT ON performance_schema.data_locks TO 'unstale_audit'@'%';
  GRANT SELECT ON performance_schema.metadata_locks TO 'unstale_audit'@'%';
  GRANT SELECT ON performance_schema.threads TO 'unstale_audit'@'%';
  GRANT SELECT ON performance_schema.variables_by_thread TO 'unstale_audit'@'%';
  GRANT SELECT ON mysql.tables_priv TO 'unstale_audit'@'%';
  GRANT SELECT (User, Host) ON mysql.user TO 'unstale_audit'@'%';
MariaDB:
  CREATE USER 'unstale_audit'@'%' IDENTIFIED BY 'change me 6';
  GRANT PROCESS, BINLOG MONITOR, REPLICA MONITOR ON *.* TO 'unstale_audit'@'%';
  GRANT SELECT, TRIGGER ON shop.* TO 'unstale_audit'@'%';
  GRANT SELECT ON mysql.tables_priv TO 'unstale_audit'@'%';
  GRANT SELECT (User, Host) ON mysql.user TO 'unstale_audit'@'%';
Redis:
  ACL SETUSER unstale_audit on >change-me-7 -@all +ping +select +info +config|get +slowlog|get +acl|dryrun +acl|getuser +acl|users +client|list +command +get %R~unstale:beacon:*
Redis of sessions, limits and locks:
  ACL SETUSER unstale_state on >change-me-10 -@all +ping +select +info +scan +pubsub|numsub
`

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

func (d *doctorCommand) addFlags(flags *pflag.FlagSet) {
	c := worker.Config{}.WithDefaults()
	d.mysql.addMySQLFlags(flags)
	d.mysql.addLookups(flags)
	d.redis.addRedisFlags(flags)
	flags.Var(&d.auditMySQL, "audit-mysql-dsn", "MySQL by an account that may look at the server")
	flags.Var(&d.auditRedis, "audit-redis-url", "Redis by an account that may look at the server")
	flags.Var(&d.state, "redis-url-state", "Redis of sessions, limits and locks, by an account that may look at it")
	flags.StringVar(&d.mapFile, "map", defaultMap, "the map's file")
	flags.StringVar(&d.wake, "wake-channel", c.WakeChannel, "channel of wake-ups; - if workers do not subscribe")
	flags.IntVar(&d.wait, "redis-wait", c.RedisWait, "as workers have it: replicas that must have acknowledged a batch")
	flags.StringVar(&d.definer, "definer", "", "account that triggers run as (DEFINER), as user@host (default: not checked)")
	flags.DurationVar(&d.long, "long-transaction", 10*time.Second, "how long a transaction may hold rows of the outbox before it is told")
	flags.StringArrayVar(&d.checks, "check", nil, "make this check alone, which may be given several times (default: all)")
	flags.BoolVar(&d.keys, "keys", false, "review the keys of the cache, and make no check")
	flags.BoolVar(&d.prove, "prove", false, "try on these servers what unstale relies on; the database must be empty")
	flags.Int64Var(&d.sample, "sample", 1_000_000, "with --keys: how many keys to look at")
	flags.BoolVar(&d.markdown, "markdown", false, "with --keys: print a page in Markdown")
	flags.BoolVar(&d.noNames, "no-names", false, "with --keys: tell no name of a key, nor of a family that the map does not name")
	flags.BoolVar(&d.strict, "strict", false, "exit with 3 if a check is unknown")
	flags.BoolVar(&d.json, "json", false, "print one JSON object")
}

func (d *doctorCommand) examine(ctx context.Context, p process) (err error) {
	for _, name := range d.checks {
		if !slices.ContainsFunc(doctor.Checks, func(c doctor.Check) bool { return c.Name == name }) {
			return usageError{fmt.Errorf("there is no check %q; %s", name, near.DidYouMean(name, checkNames(), "the checks are "+strings.Join(checkNames(), ", ")))}
		}
	}
	inputs, closeAll, err := d.inputs(p)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	all := doctor.Examine(ctx, inputs, d.checks...)
	doctor.Sort(all)
	if err := d.print(p, all); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("stopped: what was not looked at by then is unknown")
	}
	return d.verdict(doctor.Worst(all))
}

func checkNames() (names []string) {
	for _, c := range doctor.Checks {
		names = append(names, c.Name)
	}
	return names
}

// inputs opens what was given. The function that it returns closes it, with an error too.
func (d *doctorCommand) inputs(p process) (e *doctor.Inputs, closeAll func() error, err error) {
	e = &doctor.Inputs{StateDB: d.redis.state, Wait: d.wait > 0, LongTransaction: d.long}
	var opened []io.Closer
	open := func(d *doctorCommand, url secret) (k *keyspace.Keyspace, user string, err error) {
		if k, user, err = d.openRedis(url); err == nil {
			opened = append(opened, k)
		}
		return k, user, err
	}
	closeAll = func() (err error) {
		for _, o := range opened {
			err = errors.Join(err, o.Close())
		}
		return err
	}
	if d.wake != "-" {
		e.Wake = d.wake
	}
	if d.definer != "" {
		if e.Definer, err = capture.ParseAccount(d.definer); err != nil {
			return e, closeAll, usageError{fmt.Errorf("--definer: %w", err)}
		}
	}
	if d.mysql.dsn.text != "" {
		if e.MySQL, err = d.mysql.open("doctor"); err != nil {
			return e, closeAll, err
		}
		opened = append(opened, e.MySQL)
	}
	if d.auditMySQL.text != "" {
		audit := mysqlFlags{dsn: d.auditMySQL, tls: d.mysql.tls, lookupTimeout: d.mysql.lookupTimeout}
		if e.AuditMySQL, err = audit.open("doctor-audit"); err != nil {
			return e, closeAll, flagged("--audit-mysql-dsn", err)
		}
		opened = append(opened, e.AuditMySQL)
	}
	if d.redis.url.text != "" {
		if e.Redis, e.RedisUser, err = open(d, d.redis.url); err != nil {
			return e, closeAll, err
		}
	}
	if d.auditRedis.text != "" {
		audit, _, err := open(d, d.auditRedis)
		if err != nil {
			return e, closeAll, flagged("--audit-redis-url", err)
		}
		e.AuditRedis = audit.Nodes
	}
	if d.state.text != "" {
		apart := *d
		// which are databases of the cache's
		apart.redis.cache, apart.redis.state = unsetDB, unsetDB
		state, _, err := open(&apart, d.state)
		if err != nil {
			return e, closeAll, flagged("--redis-url-state", err)
		}
		e.State = state.Nodes
	}
	e.Map, e.MapError = loadMap(p, d.mapFile)
	return e, closeAll, nil
}

// doctorPatience is how long an answer may take: a slow server should be reported as slow, not as
// an outage.
const doctorPatience = 2 * time.Second

func (d *doctorCommand) openRedis(url secret) (k *keyspace.Keyspace, user string, err error) {
	f := d.redis
	f.url, f.timeout = url, max(f.timeout, doctorPatience)
	options, err := f.options()
	if err != nil {
		return nil, "", err
	}
	k, err = keyspace.Open(options)
	return k, options.Redis.Username, err
}

// flagged names the flag at fault.
func flagged(flag string, err error) error { return usageError{fmt.Errorf("%s: %w", flag, err)} }

// verdict returns an error with the exit code of a severity.
func (d *doctorCommand) verdict(worst doctor.Severity) error {
	switch {
	case worst == doctor.Critical:
		return errors.New("something is critical; see above")
	case worst == doctor.Warning:
		return answer{exitWarning, "there are warnings; see above"}
	case worst == doctor.Unknown && d.strict:
		return answer{exitWarning, "something is unknown; see above"}
	}
	return nil
}

func (d *doctorCommand) print(p process, all []doctor.Finding) error {
	summary := map[doctor.Severity]int{}
	for _, s := range []doctor.Severity{doctor.Critical, doctor.Warning, doctor.Unknown, doctor.Info, doctor.OK} {
		summary[s] = doctor.Count(all, s)
	}
	if d.json {
		return output.JSON(p.Out, struct {
			Worst    doctor.Severity         `json:"worst"`
			Counts   map[doctor.Severity]int `json:"counts"`
			Findings []doctor.Finding        `json:"findings"`
		}{doctor.Worst(all), summary, all})
	}
	fmt.Fprintf(p.Out, "%d critical, %s, %d unknown, %d ok\n", summary[doctor.Critical], output.Things(summary[doctor.Warning], "warning"),
		summary[doctor.Unknown], summary[doctor.OK]+summary[doctor.Info])
	for _, f := range gathered(all) {
		fmt.Fprintf(p.Out, "%-8s  %-17s  %s\n", f.Severity, f.Check, printable(f.Title))
		if f.Severity.AtLeast(doctor.Info) {
			f.WriteDetails(p.Out, printable)
		}
	}
	return nil
}

// gathered merges findings that are unknown for the same reason, so that they do not hide real
// problems.
func gathered(all []doctor.Finding) (list []doctor.Finding) {
	at := map[string]int{} // in list, by the missing thing and its fix
	for _, f := range all {
		key := f.Evidence + "\n" + f.Cure
		if f.Severity != doctor.Unknown || !strings.HasPrefix(f.Evidence, doctor.Needs) {
			list = append(list, f)
			continue
		}
		if i, ok := at[key]; ok {
			list[i].Check, list[i].Title = "several checks", list[i].Title+", "+f.Check
			continue
		}
		at[key], f.Title = len(list), f.Check
		list = append(list, f)
	}
	return list
}

// review implements "unstale doctor --keys".
func (d *doctorCommand) review(ctx context.Context, p process) error {
	switch {
	case d.sample < 1:
		return usageError{fmt.Errorf("--sample %d: must be at least 1", d.sample)}
	case d.json && d.markdown:
		return usageError{errors.New("--json and --markdown: give one of them")}
	case len(d.checks) > 0:
		return usageError{errors.New("--check and --keys: give one of them")}
	}
	url := cmp.Or(d.auditRedis, d.redis.url)
	if url.text == "" {
		return usageError{errors.New("no Redis given; set --redis-url or --audit-redis-url")}
	}
	m, err := loadMap(p, d.mapFile)
	if _, ok := errors.AsType[invalidation.Faults](err); ok {
		return mapError(err)
	}
	k, user, err := d.openRedis(url)
	if err != nil {
		return err
	}
	r := doctor.NewReview(m, err) // without a file there is none, which the report says
	r.User, r.NoNames = user, d.noNames
	walked, failed := k.Contents.Walk(ctx, d.sample, r.Note)
	report := r.Report(walked, failed)
	if err := errors.Join(d.printReview(p, report), k.Close()); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the review covers what was seen before: %w", failed)
	}
	return d.verdict(doctor.Worst(report.Findings))
}

func (d *doctorCommand) printReview(p process, r *doctor.ReviewReport) error {
	switch {
	case d.json:
		return output.JSON(p.Out, r)
	case d.markdown:
		return r.Markdown(p.Out)
	}
	return r.Text(p.Out)
}

// proof implements "unstale doctor --prove".
func (d *doctorCommand) proof(ctx context.Context, p process) (err error) {
	if d.keys || len(d.checks) > 0 {
		return usageError{errors.New("--prove cannot be combined with --keys or --check")}
	}
	d.redis.timeout = max(d.redis.timeout, doctorPatience)
	config, err := d.mysql.config()
	if err != nil {
		return err
	}
	options, err := d.redis.options()
	if err != nil {
		return err
	}
	inputs, closeAll, err := d.inputs(p)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	r, failed := doctor.Prove(ctx, config, inputs, options)
	if r.MySQL == "" {
		return failed
	}
	if d.json {
		err = output.JSON(p.Out, struct {
			Unstale string `json:"unstale"`
			doctor.ProofReport
		}{versionText(), r})
	} else {
		fmt.Fprintf(p.Out, "unstale %s on %s and %s\n", versionText(), r.MySQL, r.Redis)
		doctor.Sort(r.Findings)
		err = d.print(p, r.Findings)
	}
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return d.verdict(r.Worst)
}
