package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An account is the resources that the servers and this process have used since they started. MySQL
// must run on this machine, and no other client should use the servers.
type account struct {
	mysql, redis, self float64 // seconds of processor time
	statements         int64   // that MySQL was sent
	logSyncs           int64   // of InnoDB's log
	binlogSyncs        int64   // of the binary log; 0 where there is none
}

// An accountant reads accounts.
type accountant struct {
	shop *shop
	pid  int // of MySQL
}

// newAccountant finds MySQL's process.
func newAccountant(ctx context.Context, s *shop) (*accountant, error) {
	var file, dir string
	if err := s.db.QueryRowContext(ctx, "SELECT @@pid_file, @@datadir").Scan(&file, &dir); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("find MySQL's process: %w; its processor time can be read on its own machine only", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("find MySQL's process in %s: %w", file, err)
	}
	return &accountant{shop: s, pid: pid}, nil
}

func (a *accountant) read(ctx context.Context) (now account, err error) {
	if now.mysql, err = processorTime(a.pid); err != nil {
		return now, err
	}
	cpu := a.shop.InfoMap(ctx, "cpu").Val()["CPU"]
	system, err := strconv.ParseFloat(cpu["used_cpu_sys"], 64)
	user, err2 := strconv.ParseFloat(cpu["used_cpu_user"], 64)
	if err := errors.Join(err, err2); err != nil {
		return now, fmt.Errorf("read processor time of redis: %w", err)
	}
	now.redis, now.self = system+user, cpuTime()
	if now.statements, err = a.shop.questions(ctx); err != nil {
		return now, err
	}
	now.logSyncs, now.binlogSyncs, err = a.syncs(ctx)
	return now, err
}

// Contract for both: no lock, and no table of unstale. MariaDB does not count flushes of the log.
// It counts flushes of all InnoDB files, and nearly all of these are the log's. Neither server
// counts flushes of the binary log. MySQL's "miscellaneous" instruments count hardly anything else.
const (
	logSyncsSQL    = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_data_fsyncs', 'Innodb_os_log_fsyncs')"
	binlogSyncsSQL = `SELECT COALESCE(SUM(COUNT_MISC), 0) FROM performance_schema.file_summary_by_event_name
WHERE EVENT_NAME = 'wait/io/file/sql/binlog'`
)

// syncs counts flushes of MySQL's logs.
func (a *accountant) syncs(ctx context.Context) (log, binlog int64, err error) {
	rows, err := a.shop.db.QueryContext(ctx, logSyncsSQL)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	// in the order of their names: the log's own counter, if there is one, is the last
	for rows.Next() {
		var name string
		if err := rows.Scan(&name, &log); err != nil {
			return 0, 0, err
		}
	}
	if err := rows.Err(); err != nil {
		return 0, 0, err
	}
	err = a.shop.db.QueryRowContext(ctx, binlogSyncsSQL).Scan(&binlog)
	return log, binlog, err
}

// since returns what was used between two accounts.
func (a account) since(before account) account {
	return account{
		mysql: a.mysql - before.mysql, redis: a.redis - before.redis, self: a.self - before.self,
		statements: a.statements - before.statements, logSyncs: a.logSyncs - before.logSyncs, binlogSyncs: a.binlogSyncs - before.binlogSyncs,
	}
}

// clockTick is the unit of /proc/PID/stat, which Linux scales so that user and system together are
// exact to a tick.
const clockTick = 10 * time.Millisecond

// processorTime returns what a process has used, its threads that ended included, in seconds.
func processorTime(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may have blanks
	fields := strings.Fields(rest)
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("read processor time: /proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks := 0
	for _, text := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		ticks += n
	}
	return (time.Duration(ticks) * clockTick).Seconds(), nil
}
