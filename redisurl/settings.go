package redisurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/redisclient"
)

// A Role names what a Redis keeps. Each role needs its own server, or at least its own database: a
// cache evicts and is not persistent, state must stay.
type Role string

// The roles.
const (
	Cache Role = "cache" // what package cache keeps, and workers unlink
	State Role = "state" // user sessions, limits and locks
)

// UnsetDB is the number of a database that is not set.
const UnsetDB = -1

// Settings name the Redis of both roles. Each field is named after its variable: see FromEnv.
type Settings struct {
	URL      string // REDIS_URL, of the cache; see Parse
	StateURL string // REDIS_URL_STATE, of a separate server for state; "": state is at URL
	TLS      bool   // REDIS_TLS: use TLS with any URL
	CacheDB  int    // REDIS_DB_CACHE, or UnsetDB: the URL decides
	StateDB  int    // REDIS_DB_STATE, or UnsetDB

	// Files that URL and StateURL come from, or "". Each new connection reads the user and the
	// password from the file, so they can change while the program runs.
	URLFile      string // REDIS_URL_FILE
	StateURLFile string // REDIS_URL_STATE_FILE

	// Settings of TLS for both roles, read for each new connection. Any of them turns TLS on.
	CAFile            string // REDIS_TLS_CA_FILE: authorities in PEM; "": the system's
	CertFile, KeyFile string // REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE: the client's, in PEM
	ServerName        string // REDIS_TLS_SERVER_NAME: of the server's certificate; "": the host
}

// FromEnv returns the options of a role, without the Recommended settings, from these variables:
//
//   - REDIS_URL: the server, see Parse. Required, except for State with REDIS_URL_STATE.
//   - REDIS_TLS: true or false. True: use TLS with any URL.
//   - REDIS_DB_CACHE: number of the cache's database. Unset: the URL's.
//   - REDIS_DB_STATE: number of the database for state, which must not be the cache's.
//   - REDIS_URL_STATE: a separate server for state, which is better than another database.
//   - REDIS_URL_FILE, REDIS_URL_STATE_FILE: a file with the URL, in place of REDIS_URL or
//     REDIS_URL_STATE. Each new connection reads user and password from it again. Sentinel's are
//     read once.
//   - REDIS_TLS_CA_FILE, REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE: files of the authorities and of
//     the client's certificate. REDIS_TLS_SERVER_NAME: the name that the server's certificate must
//     have, if not the host's. Each turns TLS on. Each new connection reads the files.
//
// An empty variable counts as unset. If a URL and the variable of its role name different
// databases, FromEnv returns an error: a program that reads only the URL would use another
// database. The Redis client uses only database 0 of a Cluster, so there state needs
// REDIS_URL_STATE. Errors name the variable and contain no password.
func FromEnv(role Role) (*redis.UniversalOptions, error) {
	s := Settings{
		CAFile: os.Getenv("REDIS_TLS_CA_FILE"), CertFile: os.Getenv("REDIS_TLS_CERT_FILE"), KeyFile: os.Getenv("REDIS_TLS_KEY_FILE"),
		ServerName: os.Getenv("REDIS_TLS_SERVER_NAME"),
	}
	var errs [5]error
	s.TLS, errs[0] = readBool("REDIS_TLS")
	s.CacheDB, errs[1] = readDB("REDIS_DB_CACHE")
	s.StateDB, errs[2] = readDB("REDIS_DB_STATE")
	s.URL, s.URLFile, errs[3] = credentials.SecretFromEnv("REDIS_URL", os.LookupEnv)
	s.StateURL, s.StateURLFile, errs[4] = credentials.SecretFromEnv("REDIS_URL_STATE", os.LookupEnv)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return s.Options(role)
}

// readBool returns the truth in a variable.
func readBool(variable string) (bool, error) {
	text := os.Getenv(variable)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s must be true or false", variable)
	}
	return on, nil
}

// readDB returns the number in a variable.
func readDB(variable string) (int, error) {
	text := os.Getenv(variable)
	if text == "" {
		return UnsetDB, nil
	}
	db, err := strconv.ParseInt(text, 10, 32)
	if err != nil || db < UnsetDB {
		return 0, fmt.Errorf("%s must be the number of a database, for example 1", variable)
	}
	return int(db), nil
}

// Options returns the options of a role, by the rules of FromEnv. Errors name the variables.
func (s Settings) Options(role Role) (*redis.UniversalOptions, error) {
	o, err := s.at("REDIS_URL", s.URL, s.URLFile, "REDIS_DB_CACHE", s.CacheDB)
	if s.StateURL != "" {
		state, stateErr := s.at("REDIS_URL_STATE", s.StateURL, s.StateURLFile, "REDIS_DB_STATE", s.StateDB)
		switch {
		case err == nil && stateErr == nil && sameDatabase(o, state):
			return nil, bothAre("REDIS_URL_STATE names the cache's server: its database", o.DB)
		case role == State:
			return state, stateErr
		}
	}
	switch {
	case err != nil:
		return nil, err
	case s.StateURL == "" && o.DB == s.StateDB:
		return nil, bothAre("REDIS_DB_STATE", o.DB)
	case role == Cache:
		return o, nil
	case role != State:
		return nil, fmt.Errorf("there is no role %q; use redisurl.Cache or redisurl.State", role)
	case kindOf(o) == cluster:
		return nil, fmt.Errorf("REDIS_URL: %s, and it is the cache's; set REDIS_URL_STATE to a separate server for state", clusterHasOne)
	case s.StateDB == UnsetDB:
		return nil, errors.New("no database for state; set REDIS_URL_STATE to a separate server, or REDIS_DB_STATE to another database than the cache's")
	}
	o.DB = s.StateDB
	return o, nil
}

// bothAre returns the error for a database that is of both roles.
func bothAre(state string, db int) error {
	return fmt.Errorf("%s and the cache's database, of REDIS_DB_CACHE or else of REDIS_URL, are both %d; "+
		"keys that expire and keys that must stay need different databases", state, db)
}

// sameDatabase reports whether a and b lead to one database, as far as their addresses tell.
func sameDatabase(a, b *redis.UniversalOptions) bool {
	return a.DB == b.DB && a.MasterName == b.MasterName && slices.ContainsFunc(a.Addrs, func(addr string) bool {
		return slices.ContainsFunc(b.Addrs, func(other string) bool { return strings.EqualFold(addr, other) })
	})
}

// at returns the options of a URL and a database, by the names of their variables.
func (s Settings) at(urlName, url, file, dbName string, db int) (*redis.UniversalOptions, error) {
	if url == "" {
		return nil, fmt.Errorf("no Redis given; set %s, for example redis://127.0.0.1:6379/0", urlName)
	}
	files := credentials.TLSFiles{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile, ServerName: s.ServerName}
	a, err := parse(url, s.TLS || files.Given())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", urlName, err)
	}
	if files.Given() {
		if _, err := files.Config(a.redis.TLSConfig); err != nil {
			return nil, fmt.Errorf("TLS of Redis: %w", err)
		}
		a.redis.Dialer = files.Dialer(a.redis.TLSConfig)
	}
	switch {
	case db == UnsetDB:
	case a.kind == cluster && db != 0:
		return nil, fmt.Errorf("%s is %d: %s", dbName, db, clusterHasOne)
	case a.namesDB && a.redis.DB != db:
		return nil, fmt.Errorf("%s is %d and %s names another database; remove the number from %s, or make both the same", dbName, db, urlName, urlName)
	default:
		a.redis.DB = db
	}
	if file != "" {
		a.redis.CredentialsProviderContext = follow(urlName, file)
	}
	return a.redis, nil
}

// follow returns a provider that reads the user and the password from the URL in a file.
func follow(urlName, file string) func(context.Context) (user, password string, err error) {
	return func(context.Context) (string, string, error) {
		url, err := credentials.ReadSecret(file)
		if err != nil {
			return "", "", fmt.Errorf("%s%s: %w", urlName, credentials.SecretSuffix, err)
		}
		a, err := parse(url, true)
		if err != nil {
			return "", "", fmt.Errorf("%s%s %s: %w", urlName, credentials.SecretSuffix, file, err)
		}
		return a.redis.Username, a.redis.Password, nil
	}
}

const (
	redialStep = 200 * time.Millisecond
	redialMost = 5 * time.Second
)

// A redialer connects, and after failures waits before it tries a server again. It is safe for
// concurrent use.
type redialer struct {
	options *redis.UniversalOptions                                           // for timeout and TLS
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // or nil

	mu     sync.Mutex
	failed map[string]failure // by address
}

// A failure records that the last dial did not reach a server.
type failure struct {
	times int // in a row
	until time.Time
	err   error
}

// connect implements the Dialer of a client. If it cannot connect, it returns a FailedConn.
func (r *redialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	r.mu.Lock()
	before, failed := r.failed[addr]
	r.mu.Unlock()
	if failed && time.Now().Before(before.until) {
		return redisclient.FailedConn{Err: before.err}, nil
	}
	conn, err := r.dialOnce(ctx, network, addr)
	if err == nil {
		r.mu.Lock()
		delete(r.failed, addr)
		r.mu.Unlock()
		return conn, nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // a caller that leaves says nothing about the server
		r.countFailure(addr, before.times, err)
	}
	return redisclient.FailedConn{Err: err}, nil
}

// countFailure records a failure. Dials that fail together count once.
func (r *redialer) countFailure(addr string, before int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed[addr].times == before {
		r.failed[addr] = failure{before + 1, time.Now().Add(redialDelay(before + 1)), err}
	}
}

// redialDelay returns how long no connection is tried after n failures in a row.
func redialDelay(n int) time.Duration {
	return min(time.Duration(n)*redialStep, redialMost)
}

func (r *redialer) dialOnce(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.dial != nil {
		return r.dial(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.DialTimeout) // TLS' handshake included
	defer cancel()
	if r.options.TLSConfig != nil {
		return (&tls.Dialer{Config: r.options.TLSConfig}).DialContext(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}
