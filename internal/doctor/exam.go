package doctor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/invalidation"
)

// An Exam holds the connections and files to check. A nil field was not given, and checks that
// depend on it are unknown.
type Exam struct {
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
func (e *Exam) reach(ctx context.Context) {
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
func (e *Exam) redis(n need) *keyspace.Nodes {
	switch n {
	case auditRedis:
		return e.AuditRedis
	case aState:
		return e.State
	}
	return e.Redis.Nodes
}

// looker reads what is going on as `unstale status` does, with Redis if it answers.
func (e *Exam) looker() *status.Looker {
	if e.reached[aRedis] != nil {
		return status.New(e.MySQL, nil)
	}
	return status.New(e.MySQL, e.Redis)
}

// lacks returns the reason why a check cannot be made and the fix, or nil.
func (e *Exam) lacks(needs []need) (cure string, reason error) {
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
func (e *Exam) unreached(n need) (cure string, reason error) {
	switch err := e.reached[n]; {
	case err == nil:
		return "", nil
	case errors.Is(err, errNotGiven):
		return flags[n], errors.New(Needs + string(n))
	}
	return notReached, errors.New(Needs + string(n))
}
