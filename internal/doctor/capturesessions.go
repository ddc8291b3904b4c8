package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// A sessionRisk is a setting that does damage in sessions that write captured tables.
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
func captureSessions(ctx context.Context, e *Exam, on *session.Sessions, changes []capture.Change) (all []Finding, err error) {
	var risks []sessionRisk
	var trees []string
	for _, change := range changes {
		if change.Want != nil && change.Want.Tree {
			trees = append(trees, change.Table())
		}
	}
	if len(trees) > 0 {
		risk := isolationRisk
		risk.title += ": " + strings.Join(trees, ", ")
		risks = append(risks, risk)
	}
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
		f, err := risk.look(ctx, on, sessions, worker)
		if err != nil {
			return all, err
		}
		all = append(all, f...)
	}
	switch n := mysqlerr.Number(unread); {
	case unread == nil:
	case n == mysqlerr.NoTable, n == mysqlerr.NoRight:
		all = append(all, unseen("settings of other sessions that write captured tables", unread,
			"in MySQL GRANT SELECT ON performance_schema.variables_by_thread to the account of --audit-mysql-dsn; MariaDB does not show them"))
	default:
		err = unread
	}
	return all, err
}

// look returns a finding if the default or a session has the setting.
func (r sessionRisk) look(ctx context.Context, on *session.Sessions, sessions []row, worker string) ([]Finding, error) {
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
