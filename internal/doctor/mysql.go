package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// serverNow is the system time of the server: InnoDB reports the start of transactions by it,
// independent of the session's time zone.
const serverNow = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"

// Contract for all: no lock on rows; lists of the server. InnoDB reads its lists of transactions
// and locks under a short latch, so they are read once.
const (
	transactionsSQL = `SELECT CAST(trx_id AS CHAR) AS trx, trx_mysql_thread_id AS session, trx_rows_modified AS changed,
trx_lock_structs AS locks, TIMESTAMPDIFF(SECOND, trx_started, ` + serverNow + `) AS age FROM information_schema.innodb_trx
WHERE trx_started <= ` + serverNow + ` - INTERVAL ? SECOND ORDER BY trx_started LIMIT ?`
	outboxLocksSQL = `SELECT DISTINCT CAST(engine_transaction_id AS CHAR) AS trx FROM performance_schema.data_locks
WHERE object_schema = DATABASE() AND object_name LIKE 'cache\_outbox%' AND engine_transaction_id IN (`
	sessionsSQL = "SHOW PROCESSLIST"
	preparedSQL = "XA RECOVER"
)

// mostTransactions is the number of transactions that are examined, oldest first.
const mostTransactions = 100

// transactions finds transactions that keep rows of the outbox invisible or locked: open ones, and
// prepared XA transactions that were never ended.
func transactions(ctx context.Context, e *Inputs) (all []Finding, err error) {
	db := e.AuditMySQL.DB()
	if err := auditsOutbox(ctx, e); err != nil {
		return nil, err
	}
	open, err := queryRows(ctx, db, transactionsSQL, int(e.LongTransaction.Seconds()), mostTransactions+1)
	if err != nil {
		return nil, err
	}
	if len(open) > mostTransactions {
		open = open[:mostTransactions]
		all = append(all, unknown("the transactions that are younger than the oldest hundred", fmt.Errorf("more than %d are older than %s", mostTransactions, e.LongTransaction),
			"have applications end theirs, or raise --long-transaction"))
	}
	sessions, err := queryRows(ctx, db, sessionsSQL)
	if err != nil {
		return nil, err
	}
	all = append(all, jam(ctx, db, sessions)...)
	holders, err := holdersOf(ctx, db, open)
	knowsLocks := err == nil
	if n := mysqlerr.Number(err); err != nil && n != mysqlerr.NoTable && n != mysqlerr.NoRight {
		return nil, err
	}
	unclear := 0
	for _, t := range open {
		holds := slices.Contains(holders, t["trx"])
		if knowsLocks && !holds || !knowsLocks && t["changed"] == "0" && t["locks"] == "0" {
			continue
		}
		if !knowsLocks {
			unclear++
		}
		all = append(all, transactionFinding(t, sessions, holds))
	}
	prepared, err := queryRows(ctx, db, preparedSQL)
	switch {
	case err != nil:
		all = append(all, unknown("transactions that are prepared for XA", err, "GRANT XA_RECOVER_ADMIN ON *.* to the account of --audit-mysql-dsn"))
	case len(prepared) > 0:
		all = append(all, found(Warning, "transactions are prepared for XA and wait to be ended: they may hold rows of the outbox, and no restart frees these",
			fmt.Sprintf("%s, the first %s", output.Things(len(prepared), "transaction"), quoted(prepared[0]["data"])),
			"XA RECOVER CONVERT XID; lists them; XA COMMIT or XA ROLLBACK those that their coordinator has forgotten"))
	}
	if unclear > 0 {
		all = append(all, unknown("whether these transactions hold rows of the outbox", errors.New("the server does not show which tables a transaction has locked"),
			"in MySQL GRANT SELECT ON performance_schema.data_locks; MariaDB has no such list"))
	}
	return orOK(all, "no transaction that holds rows of the outbox is older than %s", e.LongTransaction), nil
}

// holdersOf returns the transactions that hold a lock in the outbox.
func holdersOf(ctx context.Context, db *sql.DB, open []row) ([]string, error) {
	ids := []any{"none"} // so that the right is tried in any case
	for _, t := range open {
		ids = append(ids, t["trx"])
	}
	return texts(ctx, db, outboxLocksSQL+strings.Repeat("?, ", len(ids)-1)+"?)", ids...)
}

// Contract: no lock; the dictionary, which shows only tables that the account has a privilege on.
const hasOutboxSQL = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'cache_outbox'"

// auditsOutbox returns an error if the audited database does not have the outbox: rows may then be
// locked elsewhere.
func auditsOutbox(ctx context.Context, e *Inputs) error {
	here, err := texts(ctx, e.AuditMySQL.DB(), hasOutboxSQL)
	if err == nil && len(here) == 0 {
		err = errors.New("the database of --audit-mysql-dsn has no outbox, or the account may not read it")
	}
	return err
}

func transactionFinding(t row, sessions []row, holds bool) Finding {
	title := "a transaction is open for long and has changed or locked rows, perhaps of the outbox"
	if holds {
		title = "a transaction is open for long and holds rows of the outbox: nobody sees what it inserted"
	}
	whose := "a session that is gone: it is prepared for XA"
	cure := "XA RECOVER CONVERT XID; lists it"
	if i := slices.IndexFunc(sessions, func(s row) bool { return s["Id"] == t["session"] }); i >= 0 {
		s := sessions[i]
		whose = describe(s)
		cure = "have the application end it; KILL " + s["Id"] + "; rolls it back"
	}
	severity := Warning
	if age, err := strconv.Atoi(t["age"]); err == nil && age > 60 && holds {
		severity = Critical
	}
	return found(severity, title, fmt.Sprintf("open for %s s, %s rows changed, by %s", t["age"], t["changed"], whose), cure)
}

const (
	floatsSince = 24 * time.Hour
	floatsLimit = 5 * time.Second // to read the journal
	mostFloats  = 10              // as evidence
)

// floatIDs looks in the journal of the last day for IDs in the notation of a float: of entities that
// have the type int, and of entities without a type that have integers too.
func floatIDs(ctx context.Context, e *Inputs) ([]Finding, error) {
	var (
		floats   []string // "entity id"
		ints     = map[string]bool{}
		began    = time.Now()
		complete = true
	)
	visit := func(b store.Batch, entries []store.JournalEntry) error {
		for i := range entries {
			name, id := entries[i].Entity, entries[i].EntityID
			switch {
			case id != "" && strings.Trim(id, "0123456789") == "":
				ints[name] = true
			case invalidation.IsFloat(id):
				floats = append(floats, fmt.Sprintf("%s %q in batch %d of %s", name, id, b.ID, b.SettledAt.Format(time.RFC3339)))
			}
		}
		if complete = time.Since(began) < floatsLimit; !complete || len(floats) >= 1000 {
			return errEnough
		}
		return nil
	}
	err := store.NewJournal(e.MySQL).ReadJournal(ctx, store.JournalQuery{Since: floatsSince}, visit, func(store.DamagedBatch) {})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	reads := e.Map.Reads()
	floats = slices.DeleteFunc(floats, func(float string) bool {
		name, _, _ := strings.Cut(float, " ")
		return !ints[name] && reads.TypeOf(name+"_id") != invalidation.TypeInt
	})
	switch {
	case len(floats) > 0:
		return []Finding{found(Warning, "a driver wrote IDs as floats, so the keys of these rows were not deleted", strings.Join(floats[:min(mostFloats, len(floats))], "\n"),
			"insert IDs as text, then invalidate these objects again: docs/adopting.md#ids-from-drivers")}, nil
	case !complete:
		return []Finding{unknown("whether a driver wrote IDs as floats", errors.New("the journal of the last day was not read within "+floatsLimit.String()), "")}, nil
	}
	return []Finding{ok("the journal of the last day has no ID that a driver wrote as a float")}, nil
}

// Contract: no lock; the server's table of privileges on tables.
const insertersSQL = `SELECT User AS user, Host AS host, Db AS db, Table_name AS tbl FROM mysql.tables_priv
WHERE Db = DATABASE() AND Table_name LIKE 'cache\_outbox%' AND FIND_IN_SET('Insert', Table_priv) ORDER BY user, host, tbl`

// inserts finds accounts that may choose the ID of a row. Only the worker's account inserts whole
// rows.
func inserts(ctx context.Context, e *Inputs) (all []Finding, err error) {
	worker := ""
	if e.reached[aMySQL] == nil {
		if worker, _, err = whoAndWhere(ctx, e.MySQL.DB()); err != nil {
			return nil, err
		}
	}
	held, err := queryRows(ctx, e.AuditMySQL.DB(), insertersSQL)
	if mysqlerr.Number(err) == mysqlerr.NoRight {
		return []Finding{unknown("which accounts may choose the ID of a row", err, "GRANT SELECT ON mysql.tables_priv to the account of --audit-mysql-dsn")}, nil
	}
	if err != nil {
		return nil, err
	}
	var evidence, cure []string
	for _, h := range held {
		account := quoteAccount(h["user"], h["host"])
		columns := schema.InsertColumns(h["tbl"])
		if columns == "" || account == worker {
			continue
		}
		evidence = append(evidence, account+" has INSERT on all columns of "+h["tbl"])
		cure = append(cure, fmt.Sprintf("GRANT INSERT (%s) ON `%s`.%s TO %s;", columns, strings.ReplaceAll(h["db"], "`", "``"), h["tbl"], quoteAccount(h["user"]+"_2", h["host"])))
	}
	if len(evidence) == 0 {
		return []Finding{ok("no account but a worker's has INSERT on a whole table of the outbox; grants on the database are not looked at")}, nil
	}
	return []Finding{found(Warning, "accounts may choose the ID of a row, and one high ID makes every later insert fail (1467)", strings.Join(evidence, "\n"),
		strings.Join(append([]string{"create a new account with the application's other privileges: docs/accounts.md#insert-privileges-by-column"}, cure...), "\n"))}, nil
}

// ids finds tables whose IDs run out because an insert has chosen a high one.
func ids(ctx context.Context, e *Inputs) (all []Finding, err error) {
	tables, err := store.NewOverview(e.MySQL).IDsLeft(ctx)
	if err != nil {
		return nil, err
	}
	const cure = "docs/operations.md, IDs that run out"
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		switch left := tables[table]; {
		case left == 0:
			all = append(all, found(Critical, "table "+table+" has no ID left, so every insert into it fails (1467), and the write that the row belongs to fails with it",
				"AUTO_INCREMENT of the table is at its end", cure))
		case left < store.FewIDs:
			all = append(all, found(Warning, "an insert into table "+table+" has chosen a high ID, so its IDs run out", fmt.Sprintf("%d IDs are left", left), cure))
		}
	}
	return orOK(all, "no insert has chosen a high ID, so IDs do not run out"), nil
}

// Contract for all: no lock on rows; lists of the server. The first is MySQL's, the second is from
// a plugin of MariaDB. Without both, the third lists open transactions, the oldest first.
const (
	metadataLocksMySQL = `SELECT DISTINCT CAST(t.processlist_id AS CHAR) AS session FROM performance_schema.metadata_locks m
JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id
WHERE m.object_schema = DATABASE() AND m.object_name LIKE 'cache\_outbox%' AND m.lock_status = 'GRANTED'`
	metadataLocksMariaDB = `SELECT DISTINCT CAST(thread_id AS CHAR) AS session FROM information_schema.metadata_lock_info
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%'`
	openSessionsSQL = "SELECT CAST(trx_mysql_thread_id AS CHAR) AS session FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 100"
)

// waitsForTable reports whether a session waits until other sessions release one of the outbox
// tables.
func waitsForTable(session row) bool {
	return strings.HasPrefix(session["State"], "Waiting for table metadata lock") && strings.Contains(session["Info"], "cache_outbox")
}

// jam reports the sessions that lock a table of the outbox, if others wait for it: later statements
// wait as well, including those of workers.
func jam(ctx context.Context, db *sql.DB, sessions []row) []Finding {
	waiting := slices.DeleteFunc(slices.Clone(sessions), func(s row) bool { return !waitsForTable(s) })
	if len(waiting) == 0 {
		return nil
	}
	title := "statements wait for a table of the outbox that somebody keeps open, and all later ones wait behind them"
	holders, err := texts(ctx, db, metadataLocksMySQL)
	if err != nil {
		holders, err = texts(ctx, db, metadataLocksMariaDB)
	}
	if err != nil {
		title += "; the oldest transactions may be at fault, the server does not show which"
		holders, err = texts(ctx, db, openSessionsSQL)
	}
	evidence := []string{output.Things(len(waiting), "session waits", "sessions wait") + ", the first is " + describe(waiting[0])}
	cure := ""
	for _, id := range holders {
		i := slices.IndexFunc(sessions, func(s row) bool { return s["Id"] == id && !waitsForTable(s) })
		if i >= 0 {
			evidence = append(evidence, "open: "+describe(sessions[i]))
			cure += "KILL " + id + "; rolls it back\n"
		}
	}
	all := []Finding{found(Critical, title, strings.Join(evidence, "\n"), "have the application end it, or give up the waiting ALTER or LOCK TABLES\n"+strings.TrimSuffix(cure, "\n"))}
	if cure == "" {
		all = append(all, unknown("who keeps the table", errors.Join(errors.New("no session is known to"), err), "look for LOCK TABLES, backups and open transactions in SHOW PROCESSLIST"))
	}
	return all
}

// describe describes a session.
func describe(s row) string {
	text := fmt.Sprintf("session %s of %s@%s in %s, ", s["Id"], s["User"], s["Host"], s["db"])
	if s["Info"] == "" {
		return text + fmt.Sprintf("idle for %s s", s["Time"])
	}
	return text + fmt.Sprintf("which says %q", s["Info"])
}

// mostConnections is the used share of the limit above which a worker may get no connection.
const mostConnections = 0.8

// Contract: no lock; counters of the server, which need no privilege.
const connectionsSQL = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Max_used_connections')"

func mysqlConnections(ctx context.Context, e *Inputs) ([]Finding, error) {
	db := e.MySQL.DB()
	rows, err := queryRows(ctx, db, connectionsSQL)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for _, r := range rows {
		if figures[r["Variable_name"]], err = strconv.ParseFloat(r["Value"], 64); err != nil {
			return nil, fmt.Errorf("%s is %q", r["Variable_name"], r["Value"])
		}
	}
	if len(figures) < 2 {
		return nil, errors.New("the server does not tell how many connections it has")
	}
	most, err := numberOf(ctx, e.MySQL, "max_connections")
	if err != nil {
		return nil, err
	}
	limit := float64(most)
	now, peak := figures["Threads_connected"], figures["Max_used_connections"]
	evidence := fmt.Sprintf("%.0f of %.0f connections are open, %.0f were at once since the server started", now, limit, peak)
	const cure = "raise max_connections, or have applications pool theirs; a worker takes ten at most"
	switch {
	case now >= mostConnections*limit:
		return []Finding{found(Critical, "hardly any connection is left", evidence, cure)}, nil
	case peak >= mostConnections*limit:
		return []Finding{found(Warning, "there were hardly any connections left", evidence, cure)}, nil
	}
	return []Finding{ok("%s", evidence)}, nil
}

// numberOf returns the global value of a variable.
func numberOf(ctx context.Context, s *session.Sessions, name string) (n int, err error) {
	value, err := s.Variable(ctx, "@@GLOBAL."+name)
	if err == nil {
		if n, err = strconv.Atoi(value); err != nil {
			err = fmt.Errorf("%s is %q", name, value)
		}
	}
	return n, err
}

// mostLag limits the lag of a replica, in seconds: a reader that loads from the replica stores data
// of that age.
const mostLag = 10

// Contract for all: no lock; the state of the replica's threads, of each of its sources. The first
// is MariaDB's, the last that of MySQL before 8.0.22.
var replicaSQL = []string{"SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"}

// sourcesOf returns the sources of a replica, or none if the server is not a replica. MySQL 8.4 has
// renamed columns that MariaDB has not: all have its names.
func sourcesOf(ctx context.Context, db *sql.DB) (rows []row, err error) {
	for _, query := range replicaSQL {
		if rows, err = queryRows(ctx, db, query); mysqlerr.Number(err) != mysqlerr.Syntax {
			break
		}
	}
	renamed := strings.NewReplacer("Master", "Source", "Slave", "Replica", "Connection_name", "Channel_Name")
	for i, r := range rows {
		rows[i] = row{}
		for name, value := range r {
			rows[i][renamed.Replace(name)] = value
		}
	}
	return rows, err
}

// mysqlReplication may examine a server other than the worker's: one of its replicas.
func mysqlReplication(ctx context.Context, e *Inputs) ([]Finding, error) {
	if cure, reason := e.unreached(auditMySQL); reason != nil {
		return []Finding{unknown("how far a replica of MySQL is behind", reason, cure)}, nil
	}
	rows, err := sourcesOf(ctx, e.AuditMySQL.DB())
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return []Finding{found(Info, "the audited MySQL is not a replica, so replicas were not checked", "a source does not know how far its replicas are behind",
			"if readers load from replicas, name one of them in --audit-mysql-dsn")}, nil
	}
	var all []Finding
	for _, r := range rows {
		all = append(all, replicaFinding(r))
	}
	return all, nil
}

// replicaFinding returns the finding of one source of a replica, which may have several.
func replicaFinding(r row) Finding {
	from, behind := cmp.Or(r["Channel_Name"], r["Source_Host"]), r["Seconds_Behind_Source"]
	running := r["Replica_SQL_Running"] == "Yes" && r["Replica_IO_Running"] == "Yes"
	if n, err := strconv.Atoi(behind); running && err == nil && n <= mostLag {
		return ok("the audited MySQL is a replica of %s, %d s behind", from, n)
	}
	evidence := fmt.Sprintf("%s seconds behind %s; reading %s, applying %s; %s %s", cmp.Or(behind, "an unknown number of"), from, r["Replica_IO_Running"],
		r["Replica_SQL_Running"], r["Last_IO_Error"], r["Last_SQL_Error"])
	return found(Warning, "the replica is behind, so readers that load from it store old values", evidence,
		"bring it up to date, or have loaders read from the primary")
}

// A setting is a server variable with a problematic value. It can have several names; a server
// knows at most one of them.
type setting struct {
	names []string
	judge func(value string) (f Finding, wrong bool)
}

// leastPacket is less than a batch of many keys needs: smaller packets cut batches, and may refuse
// a single row.
const leastPacket = 4 << 20

// sqlMode is the only variable here that may be empty: an empty value of the others means that the
// server does not have it.
const sqlMode = "@@GLOBAL.sql_mode"

var settings = []setting{
	{[]string{sqlMode}, func(v string) (Finding, bool) {
		return found(Warning, "sessions are not strict by default, so an application's row may be cut in silence", "sql_mode is "+quoted(v),
			"add STRICT_TRANS_TABLES to the server's sql_mode, or set it in each application's sessions"), !strings.Contains(v, "STRICT_")
	}},
	{[]string{"@@GLOBAL.max_allowed_packet"}, func(v string) (Finding, bool) {
		n, err := strconv.ParseInt(v, 10, 64)
		return found(Warning, "packets are small, so batches are cut and rows with many keys are dead-lettered", "max_allowed_packet is "+v,
			fmt.Sprintf("set it to %d or more", leastPacket)), err == nil && n < leastPacket
	}},
	{[]string{"@@GLOBAL.read_only"}, func(v string) (Finding, bool) {
		return found(Critical, "this MySQL is read-only, so no row is settled: a replica?", "read_only is "+v, "name the primary in --mysql-dsn"), isOn(v)
	}},
	{[]string{"@@GLOBAL.super_read_only"}, func(v string) (Finding, bool) {
		return found(Critical, "this MySQL is read-only, even for administrators", "super_read_only is "+v, "name the primary in --mysql-dsn"), isOn(v)
	}},
	{[]string{"@@GLOBAL.wsrep_on"}, func(v string) (Finding, bool) { return severalWriters("a Galera cluster"), isOn(v) }},
	{[]string{"@@GLOBAL.group_replication_single_primary_mode"}, func(v string) (Finding, bool) {
		return severalWriters("Group Replication with several primaries"), v != "" && !isOn(v)
	}},
	// The settings below cannot be wrong: sessions of unstale pin them and read them back. They may
	// surprise applications.
	{[]string{"@@GLOBAL.transaction_isolation", "@@GLOBAL.tx_isolation"}, nil},
	{[]string{"@@GLOBAL.time_zone"}, nil},
	{[]string{"@@GLOBAL.log_bin"}, nil},
	{[]string{"@@GLOBAL.binlog_format"}, nil},
}

func severalWriters(of string) Finding {
	return found(Info, "other servers take writes too", "it is a node of "+of, "let all workers use one node: docs/topologies.md")
}

// mysqlSettings also repeats the queries of a worker's start. Sessions are pinned, and were read
// back when they were opened.
func mysqlSettings(ctx context.Context, e *Inputs) (all []Finding, err error) {
	if err := e.MySQL.Check(ctx); err != nil {
		for _, one := range split(err) {
			wrong, isSetting := errors.AsType[session.SettingError](one)
			if !isSetting {
				all = append(all, unknown("settings that a worker refuses", one, ""))
				continue
			}
			text, cure, _ := strings.Cut(wrong.Error(), "; ")
			all = append(all, found(Critical, "no worker starts with this server", text, cure))
		}
	}
	var seen []string
	for _, s := range settings {
		name, value, err := s.currentValue(ctx, e.MySQL)
		if err != nil {
			return all, err
		}
		if name == "" {
			continue
		}
		seen = append(seen, name+"="+value)
		if s.judge == nil {
			continue
		}
		if f, wrong := s.judge(value); wrong {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		f := ok("settings of the server are well; sessions of unstale pin their own")
		f.Evidence = strings.Join(seen, " ")
		all = append(all, f)
	}
	return all, nil
}

// currentValue returns "" for the name if the server has none of them.
func (s setting) currentValue(ctx context.Context, db *session.Sessions) (name, value string, err error) {
	for _, name := range s.names {
		value, err := db.Variable(ctx, name)
		if err != nil || value != "" || name == sqlMode {
			return strings.TrimPrefix(name, "@@GLOBAL."), value, err
		}
	}
	return "", "", nil
}

// split returns the errors that errors.Join has joined.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func isOn(v string) bool { return v == "1" || strings.EqualFold(v, "ON") }

func quoted(v string) string { return strconv.Quote(v) }

// longHistory is the number of unpurged transactions that makes reads of the outbox slow: its rows
// are deleted all the time.
const longHistory = 1_000_000

// Contract: no lock; counters. In MariaDB the first needs no privilege, in MySQL the second needs
// PROCESS.
const (
	historyMariaDB = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"
	historyMySQL   = "SELECT count AS Value FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len' AND status = 'enabled'"
)

func purge(ctx context.Context, e *Inputs) ([]Finding, error) {
	db := e.AuditMySQL.DB()
	if err := auditsOutbox(ctx, e); err != nil {
		return nil, err
	}
	rows, err := queryRows(ctx, db, historyMariaDB)
	if err == nil && len(rows) == 0 {
		rows, err = queryRows(ctx, db, historyMySQL)
	}
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("the server does not count its history list length: trx_rseg_history_len is off in innodb_monitor_enable")
	}
	n, err := strconv.ParseInt(rows[0]["Value"], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the history list length is %q", rows[0]["Value"])
	}
	if n >= longHistory {
		return []Finding{found(Warning, "MySQL is behind with purging deleted rows", fmt.Sprintf("history list length %d", n),
			"end the oldest transaction or snapshot, such as a backup: see the check named transactions")}, nil
	}
	return []Finding{ok("the history list length is %d", n)}, nil
}
