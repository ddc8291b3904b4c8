package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
)

// captures compares the map's section capture with the triggers. It uses the audit's account if
// there is one: a worker's account sees no triggers.
func captures(ctx context.Context, e *Inputs) (all []Finding, err error) {
	wanted := e.Map.Captures()
	if len(wanted) == 0 {
		return []Finding{ok("the map captures no table")}, nil
	}
	on, audited := e.MySQL, e.reached[auditMySQL] == nil && e.elsewhere[auditMySQL] == nil
	switch {
	case audited:
		on = e.AuditMySQL
	case e.reached[aMySQL] != nil:
		return nil, errors.New("it needs " + string(aMySQL))
	}
	c := &capture.Capturer{DB: on.DB(), Captures: wanted, Definer: e.Definer, Notify: func(string) {}}
	changes, err := c.Plan(ctx)
	switch _, isFault := errors.AsType[capture.Fault](err); {
	// a worker's account does not see the tables of the application
	case isFault && !audited:
		return []Finding{unknown("whether the triggers are those of the map", err, notGivenSQL)}, nil
	case isFault:
		return []Finding{found(Critical, "the tables do not allow what the map captures", err.Error(),
			"correct the map's section capture, or the tables")}, nil
	case err != nil:
		return nil, err
	}
	tables, err := c.SchemaChanges(ctx, changes)
	if err != nil {
		return nil, err
	}
	reports := make([]Finding, len(tables))
	for i, s := range tables {
		reports[i] = found(Info, "the table "+s.Table+": "+s.Found, strings.Join(s.Triggers, "\n"), strings.Join(s.Next, "\n"))
		if s.State == capture.Foreign {
			reports[i].Severity = Warning
		}
	}
	hidden := 0
	for _, change := range changes {
		f, isFound := triggerFinding(change, e.Definer)
		if change.State == capture.Unknown {
			hidden++
		}
		if i := slices.IndexFunc(tables, func(s capture.SchemaChange) bool { return s.Explains(change) }); i >= 0 {
			reports[i].Severity = Worst([]Finding{reports[i], f})
		} else if isFound {
			all = append(all, f)
		}
	}
	all = append(all, reports...)
	if hidden > 0 {
		all = append(all, unknown(fmt.Sprintf("%d of %s", hidden, output.Things(len(changes), "trigger")),
			errors.New("without the right TRIGGER on a table the server shows none of it"), notGivenSQL))
	}
	all = orOK(all, "%s are those of the map", output.Things(len(changes), "trigger"))
	more, err := definers(ctx, c, changes)
	if err != nil {
		return all, err
	}
	all = append(all, more...)
	more, err = captureSessions(ctx, e, on, changes)
	all = append(all, more...)
	if err != nil {
		return all, err
	}
	more, err = openTables(ctx, c, on)
	return append(all, more...), err
}

// openTables compares what a delete opens with the part of the table cache that one session has.
func openTables(ctx context.Context, c *capture.Capturer, on *session.Sessions) ([]Finding, error) {
	table, opens, err := capture.MostOpens(ctx, c)
	if opens == 0 || err != nil {
		return nil, err
	}
	all, err := numberOf(ctx, on, "table_open_cache")
	parts, err2 := numberOf(ctx, on, "table_open_cache_instances")
	if err = cmp.Or(err, err2); err != nil || opens*parts <= all {
		return nil, err
	}
	return []Finding{found(Warning, "the table cache is too small for foreign keys, so each delete in "+table+" reads definitions of tables again",
		fmt.Sprintf("it opens about %d tables, one for each path of foreign keys; a session has %d of table_open_cache %d", opens, all/parts, all),
		fmt.Sprintf("SET PERSIST table_open_cache = %d; see docs/capture.md#what-it-may-cost", opens*parts))}, nil
}

// triggerFinding returns the finding about a trigger that differs from the map and can be seen.
func triggerFinding(change capture.Change, definer capture.Account) (f Finding, ok bool) {
	what := fmt.Sprintf("%s on %s", change.Event(), change.Table())
	switch change.State {
	case capture.InPlace, capture.OnCopy, capture.Unknown:
		return f, false
	case capture.WrongDefiner:
		// without a flag the expected account is unknown
		return found(Warning, "a trigger has another definer: "+what, "it is "+change.Have.Definer, "unstale capture apply --definer "+definer.String()), definer != capture.Account{}
	case capture.Outdated:
		return found(Warning, "a trigger of an earlier version has a defect: "+what, change.Have.Name, "unstale capture apply, which replaces it; docs/capture.md"), true
	case capture.NotInMap, capture.RenamedAway, capture.Duplicate:
		return found(Warning, "a trigger is "+string(change.State)+": "+what, change.Have.Name, "unstale capture apply, which drops it"), true
	case capture.Moved:
		return found(Warning, "a trigger is "+string(change.State)+": "+what, "a schema change moves it", "unstale capture apply, when that has ended"), true
	default:
		return found(Critical, "a trigger is "+string(change.State)+", so writes leave stale keys behind: "+what,
			"by the map there is to be one", "unstale capture apply"), true
	}
}

// definers checks whether the accounts that triggers run as exist and have their privileges.
func definers(ctx context.Context, c *capture.Capturer, changes []capture.Change) (all []Finding, err error) {
	list, err := c.Definers(ctx, changes)
	for _, d := range list {
		what := fmt.Sprintf("%s of %s", d.Account, output.Things(d.Triggers, "trigger"))
		switch {
		case d.Ahead != nil:
			evidence, cure, _ := strings.Cut(d.Ahead.Error(), ":\n")
			all = append(all, found(Warning, "the definer "+what+" will not be able to do what they do, so every write to their tables will fail", evidence, strings.TrimSpace(cure)))
		case d.Err == nil:
			all = append(all, ok("the definer %s has its privileges", what))
		case errors.Is(d.Err, capture.ErrUnreadable):
			all = append(all, unknown("whether the definer "+what+" has its privileges", d.Err,
				"GRANT SELECT (User, Host) ON mysql.user to the account of --audit-mysql-dsn shows whether it exists, SELECT ON mysql.* what it may do"))
		default:
			evidence, cure, _ := strings.Cut(d.Err.Error(), ":\n")
			all = append(all, found(Critical, "the definer "+what+" cannot do what they do, so every write to their tables fails", evidence, strings.TrimSpace(cure)))
		}
	}
	return all, err
}

// A sessionRisk is a setting that does damage in sessions that write captured tables, or in all.
type sessionRisk struct {
	global []string // names of the default; a server has at most one of them
	name   string   // in performance_schema.variables_by_thread
	values []string
	title  string
	cure   string
}

var (
	isolationRisk = sessionRisk{
		[]string{"@@GLOBAL.transaction_isolation", "@@GLOBAL.tx_isolation"}, "transaction_isolation", []string{"READ-COMMITTED", "READ-UNCOMMITTED"},
		"a delete from a captured tree in one table may lose rows at READ COMMITTED",
		"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ before each transaction that deletes from it; docs/capture.md#cascades-over-several-levels",
	}
	cycleRisk = sessionRisk{
		[]string{"@@GLOBAL.innodb_native_foreign_keys"}, "", []string{"0"},
		"MySQL itself may keep rows, or delete others without triggers, where captured tables delete from each other in a cycle",
		"start MySQL with innodb_native_foreign_keys = ON; docs/capture.md#cascades-over-several-levels",
	}
	formatRisk = sessionRisk{
		[]string{"@@GLOBAL.binlog_format"}, "binlog_format", []string{"STATEMENT"},
		"a write to a captured table at binlog_format = STATEMENT may stop the replicas (1032, 1062)", "use binlog_format = ROW; docs/capture.md#replication",
	}
	logRisk = sessionRisk{
		nil, "sql_log_bin", []string{"OFF"},
		"a write to a captured table at sql_log_bin = 0 may stop the replicas (1032)", "do not write captured tables in such a session; docs/capture.md#replication",
	}
)

// Contract: no lock on rows; the settings of all sessions, each read under a short lock.
const sessionSettingsSQL = `SELECT t.processlist_user AS user, v.variable_name AS name, v.variable_value AS value, COUNT(*) AS sessions
FROM performance_schema.variables_by_thread AS v JOIN performance_schema.threads AS t ON t.thread_id = v.thread_id
WHERE t.type = 'FOREGROUND' AND t.processlist_user <> SUBSTRING_INDEX(USER(), '@', 1)
AND v.variable_name IN ('transaction_isolation', 'binlog_format', 'sql_log_bin') AND v.variable_value IN ('READ-COMMITTED', 'READ-UNCOMMITTED', 'STATEMENT', 'OFF')
GROUP BY user, name, value ORDER BY user, name, value`

// captureSessions finds defaults and sessions that let triggers lose rows or stop replicas.
func captureSessions(ctx context.Context, e *Inputs, on *session.Sessions, changes []capture.Change) (all []Finding, err error) {
	var risks []sessionRisk
	with := func(risk sessionRisk, has func(*capture.Trigger) bool) {
		var tables []string
		for _, change := range changes {
			if change.Want != nil && has(change.Want) {
				tables = append(tables, change.Table())
			}
		}
		if len(tables) > 0 {
			risk.title += ": " + strings.Join(tables, ", ")
			risks = append(risks, risk)
		}
	}
	with(isolationRisk, func(t *capture.Trigger) bool { return t.Tree })
	with(cycleRisk, func(t *capture.Trigger) bool { return t.Cycle })
	logged, err := on.Variable(ctx, "@@GLOBAL.log_bin")
	if err != nil {
		return nil, err
	}
	if isOn(logged) {
		risks = append(risks, formatRisk, logRisk)
	}
	if len(risks) == 0 {
		return nil, nil
	}
	sessions, unread := queryRows(ctx, on.DB(), sessionSettingsSQL)
	worker := ""
	if e.reached[aMySQL] == nil {
		if err := e.MySQL.DB().QueryRowContext(ctx, "SELECT SUBSTRING_INDEX(USER(), '@', 1)").Scan(&worker); err != nil {
			return nil, err
		}
	}
	for _, risk := range risks {
		f, err := risk.findings(ctx, on, sessions, worker)
		if err != nil {
			return all, err
		}
		all = append(all, f...)
	}
	switch n := mysqlerr.Number(unread); {
	case unread == nil:
	case n == mysqlerr.NoTable, n == mysqlerr.NoRight:
		all = append(all, unknown("settings of other sessions that write captured tables", unread,
			"in MySQL GRANT SELECT ON performance_schema.variables_by_thread to the account of --audit-mysql-dsn; MariaDB does not show them"))
	default:
		err = unread
	}
	return all, err
}

// findings returns a finding if the default or a session has the setting.
func (r sessionRisk) findings(ctx context.Context, on *session.Sessions, sessions []row, worker string) ([]Finding, error) {
	var evidence []string
	for _, name := range r.global {
		value, err := on.Variable(ctx, name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(r.values, value) {
			evidence = append(evidence, strings.TrimPrefix(name, "@@GLOBAL.")+" is "+value+" by default")
		}
	}
	for _, s := range sessions {
		// it writes no captured table
		isWorker := r.name == isolationRisk.name && s["user"] == worker
		if s["name"] == r.name && slices.Contains(r.values, s["value"]) && !isWorker {
			evidence = append(evidence, fmt.Sprintf("%s = %s in %s session(s) of %s", r.name, s["value"], s["sessions"], s["user"]))
		}
	}
	if len(evidence) == 0 {
		return nil, nil
	}
	return []Finding{found(Warning, r.title, strings.Join(evidence, "\n"), r.cure)}, nil
}
