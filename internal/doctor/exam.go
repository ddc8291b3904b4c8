package doctor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/registry"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/verdict"
	"github.com/unstale/unstale/invalidation"
)

// An Exam is what a doctor looks at. What is nil was not given, and what depends on it is unknown.
type Exam struct {
	MySQL      *store.Store       // by the worker's account
	Redis      *keyspace.Keyspace // by the worker's account
	AuditMySQL *store.Store
	AuditRedis *keyspace.Keyspace
	State      *keyspace.Keyspace // of sessions, limits and locks, by an account that may look at it
	Map        *invalidation.Map
	MapError   error // why there is none

	RedisUser string          // of the worker's account
	StateDB   int             // of sessions, limits and locks in the cache's Redis; negative: not known
	Wake      string          // channel of hints; "": none
	Wait      bool            // --redis-wait is used
	Definer   capture.Account // of triggers; none: not known

	LongTransaction time.Duration // how long one may be open before it is told; whole seconds

	reached   map[need]error            // nil: it answers, or in Redis Cluster some master does
	elsewhere map[need]*elsewhere       // accounts for an audit that lead to other servers than the worker's
	unplaced  map[need]error            // those of which nobody knows where they lead
	away      map[need]map[string]error // masters of a Redis Cluster that do not answer, by address, where some do
}

// A need is what a check cannot do without.
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

// Needs begins the evidence of a finding whose check was not made for want of something.
const Needs = "it needs "

// flags are how to give what is needed.
var flags = map[need]string{
	aMySQL: "give --mysql-dsn", aRedis: "give --redis-url", aMap: "give --map", auditMySQL: notGivenSQL, auditRedis: notGivenRed,
	aState: "give --redis-url-state, if there is one; 'unstale doctor --help' prints the account",
}

var errNotGiven = errors.New("not given")

// reach asks whatever was given whether it answers.
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
	tryRedis := func(n need, k *keyspace.Keyspace) {
		try(n, func(ctx context.Context) error {
			answers, err := k.PingMasters(ctx)
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
		tryRedis(aRedis, e.Redis)
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

// redis is one of the Redis.
func (e *Exam) redis(n need) *keyspace.Keyspace {
	return map[need]*keyspace.Keyspace{aRedis: e.Redis, auditRedis: e.AuditRedis, aState: e.State}[n]
}

// status reads a status in MySQL, and in Redis what workers publish there, if it answers.
func (e *Exam) status(ctx context.Context) (store.Status, error) {
	s, err := e.MySQL.Status(ctx)
	if err == nil && e.reached[aRedis] == nil {
		registry.Read(ctx, keyspace.NewBoard(e.Redis), &s)
	}
	return s, err
}

// look reads a status as `unstale status` does: a second one where the first leaves a doubt.
func (e *Exam) look(ctx context.Context) (store.Status, verdict.Verdict, error) {
	s, err := e.status(ctx)
	if err != nil || !verdict.Doubtful(s) {
		return s, verdict.Of(s, nil), err
	}
	select {
	case <-ctx.Done():
		return s, verdict.Of(s, nil), nil
	case <-time.After(verdict.SecondLook):
	}
	second, err := e.status(ctx)
	return second, verdict.Of(second, verdict.First(nil, s)), err
}

// lacks is why a check cannot be made, or nil, and the cure.
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

// unreached is why something cannot be asked, or nil, and the cure.
func (e *Exam) unreached(n need) (cure string, reason error) {
	switch err := e.reached[n]; {
	case err == nil:
		return "", nil
	case errors.Is(err, errNotGiven):
		return flags[n], errors.New(Needs + string(n))
	}
	return notReached, errors.New(Needs + string(n))
}
