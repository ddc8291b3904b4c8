package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/invalidation"
)

// Inputs hold the connections and files to check. A nil field was not given, and checks that
// depend on it are unknown.
type Inputs struct {
	MySQL      *session.Sessions  // by the worker's account
	Redis      *keyspace.Keyspace // by the worker's account
	AuditMySQL *session.Sessions
	AuditRedis *keyspace.Nodes
	State      *keyspace.Nodes // of sessions, limits and locks, by an account that may look at it
	Map        *invalidation.Map
	MapError   error // why there is no map

	RedisUser string // of the worker's account
	// of sessions, limits and locks in the cache's Redis; negative: not known
	StateDB int
	Wake    string          // channel of hints; "": none
	Wait    bool            // --redis-wait is used
	Definer capture.Account // of triggers; none: not known

	LongTransaction time.Duration // age of an open transaction that is reported; whole seconds

	mayExceed bool // the accounts are those of a proof, which may do more than a worker

	reached map[need]error // nil: it answers, or in Redis Cluster at least one master does
	// accounts for an audit that lead to other servers than the worker's
	elsewhere map[need]*elsewhere
	unplaced  map[need]error // accounts for an audit whose server is unknown
	// masters of a Redis Cluster that do not answer, by address, if others do
	away map[need]map[string]error
}

// A need is a requirement of a check.
type need string

const (
	aMySQL     need = "MySQL"
	aRedis     need = "Redis"
	aMap       need = "a map"
	auditMySQL need = "an account to audit MySQL"
	auditRedis need = "an account to audit Redis"
	aState     need = "the Redis of sessions, limits and locks"
)

const (
	reachLimit  = 5 * time.Second
	notReached  = "see the check named reach"
	notGivenSQL = "give --audit-mysql-dsn; 'unstale doctor --help' prints the account"
	notGivenRed = "give --audit-redis-url; 'unstale doctor --help' prints the account"
)

// Needs begins the evidence of a finding whose check lacks a requirement.
const Needs = "it needs "

// flags are the flags that provide a requirement.
var flags = map[need]string{
	aMySQL: "give --mysql-dsn", aRedis: "give --redis-url", aMap: "give --map", auditMySQL: notGivenSQL, auditRedis: notGivenRed,
	aState: "give --redis-url-state, if there is one; 'unstale doctor --help' prints the account",
}

var errNotGiven = errors.New("not given")

// reach checks that each given server answers.
func (e *Inputs) reach(ctx context.Context) {
	e.reached = map[need]error{aMySQL: errNotGiven, aRedis: errNotGiven, aMap: errNotGiven, auditMySQL: errNotGiven, auditRedis: errNotGiven, aState: errNotGiven}
	try := func(n need, ping func(context.Context) error) {
		limited, cancel := context.WithTimeout(ctx, reachLimit)
		defer cancel()
		e.reached[n] = ping(limited)
	}
	if e.MySQL != nil {
		try(aMySQL, e.MySQL.Ping)
	}
	e.away = map[need]map[string]error{}
	tryRedis := func(n need, nodes *keyspace.Nodes) {
		try(n, func(ctx context.Context) error {
			answers, err := nodes.PingMasters(ctx)
			all := len(answers)
			maps.DeleteFunc(answers, func(_ string, err error) bool { return err == nil })
			if len(answers) < all {
				e.away[n] = answers
				return err
			}
			for _, addr := range slices.Sorted(maps.Keys(answers)) {
				return answers[addr]
			}
			return err
		})
	}
	if e.Redis != nil {
		tryRedis(aRedis, e.Redis.Nodes)
	}
	if e.State != nil {
		tryRedis(aState, e.State)
	}
	if e.AuditMySQL != nil {
		try(auditMySQL, e.AuditMySQL.Ping)
	}
	if e.AuditRedis != nil {
		tryRedis(auditRedis, e.AuditRedis)
	}
	if e.Map != nil || e.MapError != nil {
		e.reached[aMap] = e.MapError
	}
}

// redis returns the servers of one Redis, which the caller must have checked to be given.
func (e *Inputs) redis(n need) *keyspace.Nodes {
	switch n {
	case auditRedis:
		return e.AuditRedis
	case aState:
		return e.State
	}
	return e.Redis.Nodes
}

// looker reads what is going on as `unstale status` does, with Redis if it answers.
func (e *Inputs) looker() *status.Looker {
	if e.reached[aRedis] != nil {
		return status.New(e.MySQL, nil)
	}
	return status.New(e.MySQL, e.Redis)
}

// lacks returns the reason why a check cannot be made and the fix, or nil.
func (e *Inputs) lacks(needs []need) (cure string, reason error) {
	for _, n := range needs {
		if cure, reason := e.unreached(n); reason != nil {
			return cure, reason
		}
		if other := e.elsewhere[n]; other != nil {
			return "name the server of the workers in " + other.flag, other
		}
	}
	return "", nil
}

// unreached returns the reason why a server cannot be asked and the fix, or nil.
func (e *Inputs) unreached(n need) (cure string, reason error) {
	switch err := e.reached[n]; {
	case err == nil:
		return "", nil
	case errors.Is(err, errNotGiven):
		return flags[n], errors.New(Needs + string(n))
	}
	return notReached, errors.New(Needs + string(n))
}

// reach reports which given servers do not answer.
func reach(_ context.Context, e *Inputs) (all []Finding, _ error) {
	answered := []string{}
	for _, n := range []need{aMySQL, aRedis, aMap, auditMySQL, auditRedis, aState} {
		for _, addr := range slices.Sorted(maps.Keys(e.away[n])) {
			after := ", and rows with keys there wait"
			if n == aState {
				after = ""
			}
			all = append(all, found(n.severity(), string(n)+": a master of the Cluster does not answer"+after, addr+": "+e.away[n][addr].Error(),
				"bring it back, or have a replica take over"))
		}
		switch err := e.reached[n]; {
		case errors.Is(err, errNotGiven):
		case err == nil:
			answered = append(answered, string(n))
		case n == aMap:
			all = append(all, mapFinding(err))
		default:
			title, cure := refusal(err)
			all = append(all, found(n.severity(), string(n)+title, err.Error(), cure))
		}
	}
	all = append(all, e.placed()...)
	if len(all) == 0 && len(answered) > 0 {
		all = append(all, ok("given and well: %s", strings.Join(answered, ", ")))
	}
	if len(all) == 0 {
		all = append(all, unknown("nothing to look at", errNotGiven, "give --mysql-dsn, --redis-url and --map"))
	}
	return all, nil
}

// severity returns the severity of a server that does not answer: workers can run without some.
func (n need) severity() Severity {
	switch n {
	case auditMySQL, auditRedis, aState:
		return Warning
	}
	return Critical
}

func mapFinding(err error) Finding {
	cure := "fix it; 'unstale map check' says more"
	if _, refused := errors.AsType[invalidation.Faults](err); !refused {
		cure = "name the file with --map"
	}
	return found(Critical, "the map is refused: no worker starts with it, and one that runs keeps the old one", err.Error(), cure)
}

// refusal describes a server that answers and refuses, or one that does not answer, and the fix. An
// outage of Redis has its own fix for most refusals.
func refusal(err error) (title, cure string) {
	var redis *keyspace.Outage
	var setting session.SettingError
	switch {
	case errors.As(err, &redis) && redis.State == keyspace.StateAuth:
		return " refuses the account", "check user and password of the URL; ACL GETUSER shows whether the user is on and has that password"
	case errors.As(err, &redis) && redis.State != keyspace.StateNetwork && redis.State != keyspace.StateTimeout:
		return " answers with a refusal", "what the error names; docs/operations.md#outages"
	case errors.As(err, &setting):
		_, cure, _ := strings.Cut(setting.Error(), "; ")
		return " does not fit: no worker starts with it", cure
	case mysqlerr.Number(err) != 0:
		return " refuses the account or the session", cmp.Or(session.Fix(err), "what the error names")
	}
	return " does not answer", "check its address, and that it runs"
}

// An elsewhere means that an account for an audit leads to another server than the worker's, so its
// findings do not concern workers.
type elsewhere struct {
	flag, than string
	replica    bool // of the worker's server
}

func (o *elsewhere) Error() string {
	text := o.flag + " leads to another server than " + o.than
	if o.replica {
		text += ", a replica of it"
	}
	return text
}

// compare checks whether the accounts for an audit lead to the worker's servers, if both were given
// and answer.
func (e *Inputs) compare(ctx context.Context) {
	e.elsewhere, e.unplaced = map[need]*elsewhere{}, map[need]error{}
	note := func(worker, audit need, find func(context.Context) (*elsewhere, error)) {
		if e.reached[worker] != nil || e.reached[audit] != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, reachLimit)
		defer cancel()
		if other, err := find(limited); err != nil {
			e.unplaced[audit] = err
		} else if other != nil {
			e.elsewhere[audit] = other
		}
	}
	note(aMySQL, auditMySQL, e.otherMySQL)
	note(aRedis, auditRedis, e.otherRedis)
}

// placed reports accounts for an audit that lead to another server.
func (e *Inputs) placed() (all []Finding) {
	for _, n := range []need{auditMySQL, auditRedis} {
		other := e.elsewhere[n]
		switch {
		case e.unplaced[n] != nil:
			all = append(all, unknown("whether "+string(n)+" leads to the server of the workers", e.unplaced[n], "make it by 'unstale doctor --help'"))
		case other == nil:
		case other.replica:
			all = append(all, found(Info, "what concerns the server of the workers is unknown", other.Error(), "to look at that server, name it in "+other.flag))
		default:
			all = append(all, found(Warning, "the audit looks at a server that is not the workers'", other.Error(), "name the same server in "+other.flag+" and in "+other.than))
		}
	}
	return all
}

// Contract: no lock; a few variables, which need no privilege. server_uuid is MySQL's, server_uid
// MariaDB's.
const whichServerSQL = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'socket', 'server_id', 'server_uuid', 'server_uid', 'datadir')`

func whichServer(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := queryRows(ctx, db, whichServerSQL)
	if err != nil {
		return nil, fmt.Errorf("ask which server it is: %w", err)
	}
	all := map[string]string{}
	for _, r := range rows {
		all[r["Variable_name"]] = r["Value"]
	}
	return all, nil
}

func (e *Inputs) otherMySQL(ctx context.Context) (*elsewhere, error) {
	audited, err := whichServer(ctx, e.AuditMySQL.DB())
	if err != nil {
		return nil, err
	}
	workers, err := whichServer(ctx, e.MySQL.DB())
	if err != nil || maps.Equal(audited, workers) {
		return nil, err
	}
	other := &elsewhere{flag: "--audit-mysql-dsn", than: "--mysql-dsn"}
	// a server that does not report its sources counts as no replica
	sources, _ := sourcesOf(ctx, e.AuditMySQL.DB())
	for _, s := range sources {
		uuid, id, port := s["Source_UUID"], s["Source_Server_Id"], s["Source_Port"]
		if uuid != "" && uuid == workers["server_uuid"] || uuid == "" && id == workers["server_id"] && port == workers["port"] {
			other.replica = true
		}
	}
	return other, nil
}

// otherRedis has the worker's account store a key of doctor's own for some seconds, which the
// account for the audit reads.
func (e *Inputs) otherRedis(ctx context.Context) (*elsewhere, error) {
	name, text := keyspace.OwnPrefixes[0]+"doctor:"+rand.Text(), rand.Text()
	if err := e.Redis.Nodes.Client().Set(ctx, name, text, 10*time.Second).Err(); err != nil {
		return nil, fmt.Errorf("mark the workers' Redis: %w", err)
	}
	defer e.Redis.Nodes.Client().Unlink(ctx, name)
	got, err := readIn(ctx, e.AuditRedis, e.Redis.Nodes.DB(), name)
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("look for a mark in the audited Redis: %w", err)
	}
	other := &elsewhere{flag: "--audit-redis-url", than: "--redis-url"}
	if one, ok := e.AuditRedis.Client().(*redis.Client); ok {
		told, err := one.Info(ctx, "replication").Result()
		if err != nil {
			return nil, fmt.Errorf("ask for INFO replication: %w", err)
		}
		other.replica = strings.Contains(told, "role:slave")
	}
	if got == text && !other.replica {
		return nil, nil
	}
	// a server without the key in time counts as no replica
	other.replica = got == text
	return other, nil
}

// readIn reads a key of one of the databases.
func readIn(ctx context.Context, n *keyspace.Nodes, db int, name string) (text string, err error) {
	one, ok := n.Client().(*redis.Client)
	if !ok || n.DB() == db {
		return n.Client().Get(ctx, name).Result()
	}
	conn := one.Conn()
	defer func() { err = cmp.Or(err, conn.Select(ctx, n.DB()).Err(), conn.Close()) }()
	if err := conn.Select(ctx, db).Err(); err != nil {
		return "", err
	}
	return conn.Get(ctx, name).Result()
}

// A row is one result row of a query, by the column names that the server returns.
type row map[string]string

// queryRows returns the rows of a query, NULL as "". The columns of SHOW differ between servers.
func queryRows(ctx context.Context, db *sql.DB, query string, args ...any) (all []row, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		one := row{}
		for i, name := range columns {
			one[name] = cells[i].String
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// texts returns the only column of a query.
func texts(ctx context.Context, db *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := queryRows(ctx, db, query, args...)
	for _, r := range rows {
		for _, text := range r {
			all = append(all, text)
		}
	}
	return all, err
}
