package redisurl

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A kind of deployment decides which client is built.
type kind uint8

const (
	single kind = iota
	cluster
	sentinel
)

// kindOf returns the kind of deployment that options lead to.
func kindOf(o *redis.UniversalOptions) kind {
	switch {
	case o.MasterName != "":
		return sentinel
	case o.IsClusterMode || len(o.Addrs) > 1:
		return cluster
	}
	return single
}

const clusterHasOne = "the Redis client uses only database 0 of a Cluster, even with Valkey 9"

// schemes are the schemes of URLs.
var schemes = map[string]struct {
	kind kind
	tls  bool
}{
	"redis":           {single, false},
	"rediss":          {single, true},
	"redis+cluster":   {cluster, false},
	"rediss+cluster":  {cluster, true},
	"redis+sentinel":  {sentinel, false},
	"rediss+sentinel": {sentinel, true},
}

// queryOptions are the options after the question mark.
var queryOptions = map[kind][]string{
	single:   {"db", "skip_verify"},
	cluster:  {"db", "skip_verify"},
	sentinel: {"db", "master", "sentinel_password", "sentinel_username", "skip_verify"},
}

// Parse returns the address, credentials and TLS configuration of a URL of the forms in the package
// comment. forceTLS enables TLS for every scheme. The Redis client uses only database 0 of a Cluster,
// so Parse refuses another one. Errors quote only parts that cannot belong to a password.
func Parse(url string, forceTLS bool) (*redis.UniversalOptions, error) {
	a, err := parse(url, forceTLS)
	if err != nil {
		return nil, err
	}
	return a.redis, nil
}

// parse does not use net/url for two reasons: net/url refuses several hosts, and its errors quote
// the text, where a password with a stray character can be at any place.
func parse(raw string, forceTLS bool) (*address, error) {
	name, rest, ok := strings.Cut(raw, "://")
	scheme, known := schemes[name]
	if !ok || !known {
		return nil, errors.New("it must begin with redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return nil, errors.New("it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?")
	}
	path, query, _ := strings.Cut(tail, "?")

	a := &address{kind: scheme.kind, redis: &redis.UniversalOptions{IsClusterMode: scheme.kind == cluster}}
	if scheme.tls || forceTLS {
		a.redis.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := a.readAuthority(authority); err != nil {
		return nil, err
	}
	options, err := readQuery(query, queryOptions[a.kind])
	if err != nil {
		return nil, err
	}
	if err := a.readPath(path, options); err != nil {
		return nil, err
	}
	if err := a.readOptions(options); err != nil {
		return nil, err
	}
	return a, nil
}

// An address is a URL that is being read.
type address struct {
	kind    kind
	redis   *redis.UniversalOptions
	namesDB bool
}

// readAuthority reads user:password@host:port,host:port.
func (a *address) readAuthority(text string) error {
	hosts := text
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		hosts = text[i+1:]
		username, password, _ := strings.Cut(text[:i], ":")
		var err1, err2 error
		a.redis.Username, err1 = url.PathUnescape(username)
		a.redis.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return errors.New("its user or password has a % that is not an escape; write %25 for %")
		}
	}
	list := strings.Split(hosts, ",")
	if a.kind == single && len(list) > 1 {
		return errors.New("it names several hosts; use redis+cluster:// or redis+sentinel://")
	}
	port := "6379"
	if a.kind == sentinel {
		port = "26379"
	}
	for i, host := range list {
		hostport, err := readHost(host, port)
		if err != nil {
			return fmt.Errorf("host %d of %d: %w", i+1, len(list), err)
		}
		a.redis.Addrs = append(a.redis.Addrs, hostport)
	}
	return nil
}

// readHost reads host, host:port or [ipv6]:port.
func readHost(text, port string) (string, error) {
	host, rest := text, ""
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return "", errors.New("it opens [ and does not close it")
		}
		host, rest = text[1:end], text[end+1:]
		if net.ParseIP(host) == nil {
			return "", errors.New("what stands in [] is not an IP address")
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	}
	if host == "" {
		return "", errors.New("it is empty")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return "", errors.New("it has a space or a character that cannot be printed")
	}
	if rest != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(rest, ":"), 10, 16)
		if err != nil || n == 0 || rest[0] != ':' {
			return "", errors.New("its port is not a number from 1 to 65535")
		}
		port = rest[1:]
	}
	return net.JoinHostPort(host, port), nil
}

// readQuery accepts known options, each once. A + is not a space, unlike in forms.
func readQuery(query string, known []string) (map[string]string, error) {
	options := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err1 := url.PathUnescape(name)
		value, err2 := url.PathUnescape(value)
		if err1 != nil || err2 != nil {
			return nil, errors.New("its query has a % that is not an escape; write %25 for %")
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("it has an unknown option; known are %s; write %%26 for & in a password", strings.Join(known, ", "))
		}
		if _, twice := options[name]; twice {
			return nil, fmt.Errorf("it gives the option %s twice", name)
		}
		options[name] = value
	}
	return options, nil
}

// readPath reads /db, and for Sentinel /master, /master/db or, where the query names the master,
// /db.
func (a *address) readPath(path string, options map[string]string) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "" {
		parts = nil
	}
	if _, named := options["master"]; a.kind == sentinel && !named && len(parts) > 0 {
		master, err := url.PathUnescape(parts[0])
		if err != nil {
			return errors.New("its master name has a % that is not an escape; write %25 for %")
		}
		a.redis.MasterName, parts = master, parts[1:]
	}
	if len(parts) == 0 {
		return nil
	}
	if _, given := options["db"]; given {
		return errors.New("it gives the database twice, in the path and as an option")
	}
	if len(parts) > 1 {
		return errors.New("its path has too many parts")
	}
	options["db"] = parts[0]
	return nil
}

// readOptions takes over what path and query said.
func (a *address) readOptions(options map[string]string) error {
	for name, value := range options {
		switch name {
		case "db":
			db, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return errors.New("its database must be a number, 0 or more")
			}
			if a.kind == cluster && db != 0 {
				return errors.New("its database is not 0: " + clusterHasOne)
			}
			a.redis.DB, a.namesDB = int(db), true
		case "skip_verify":
			skip, err := strconv.ParseBool(value)
			if err != nil {
				return errors.New("its option skip_verify must be true or false")
			}
			switch {
			case skip && a.redis.TLSConfig == nil:
				return errors.New("skip_verify is set but TLS is off")
			case skip:
				a.redis.TLSConfig.InsecureSkipVerify = true
			}
		case "master":
			a.redis.MasterName = value
		case "sentinel_username":
			a.redis.SentinelUsername = value
		case "sentinel_password":
			a.redis.SentinelPassword = value
		}
	}
	if a.kind == sentinel && a.redis.MasterName == "" {
		return errors.New("it names no master; write redis+sentinel://host:port/master")
	}
	return nil
}

const (
	recommendedTimeout = 200 * time.Millisecond
	recommendedPool    = 20
	recommendedRetries = 1
)

// Recommended returns a copy of o with settings for package cache, limits and locks. It sets only
// fields that are zero:
//
//   - DialTimeout, ReadTimeout, WriteTimeout and PoolTimeout: 200 ms. 50 to 200 ms suit a cache.
//   - PoolSize: 20 connections to each server, which are kept open.
//   - MaxRetries: 1. In Redis Cluster the default of MaxRedirects bounds retries.
//   - DialerRetries: 1. Errors then have the reason of a failed connection.
//   - MaintNotificationsConfig: off.
//
// It always sets ContextTimeoutEnabled: deadlines of contexts end calls. It always sets
// DisableIdentity: connecting then needs no ACL permission but SELECT. It replaces Dialer by one
// that reconnects with backoff, and calls the Dialer of o if there is one. After n failures in a
// row to connect to a server, no connection is tried for n x 200 ms, at most 5 s. Commands that
// need a connection then fail immediately, with the last reason.
//
// Callers may change fields of the result before they make the client. worker.Config.Redis does not
// need it: workers have their own settings.
func Recommended(o *redis.UniversalOptions) *redis.UniversalOptions {
	r := *o
	for _, timeout := range []*time.Duration{&r.DialTimeout, &r.ReadTimeout, &r.WriteTimeout, &r.PoolTimeout} {
		*timeout = cmp.Or(*timeout, recommendedTimeout)
	}
	r.PoolSize = cmp.Or(r.PoolSize, recommendedPool)
	if kindOf(&r) != cluster {
		r.MaxRetries = cmp.Or(r.MaxRetries, recommendedRetries)
	}
	r.DialerRetries = cmp.Or(r.DialerRetries, 1)
	if r.MaintNotificationsConfig == nil {
		r.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	r.ContextTimeoutEnabled, r.DisableIdentity = true, true
	r.Dialer = (&redialer{options: &r, dial: o.Dialer, failed: map[string]failure{}}).connect
	return &r
}

// Redacted returns where options lead, as a URL that is fit for a log: passwords are masked.
func Redacted(o *redis.UniversalOptions) string {
	var b strings.Builder
	for name, s := range schemes {
		if s.kind == kindOf(o) && s.tls == (o.TLSConfig != nil) {
			b.WriteString(name)
		}
	}
	b.WriteString("://")
	if o.Username != "" || o.Password != "" {
		b.WriteString(url.PathEscape(o.Username))
		if o.Password != "" {
			b.WriteString(":xxxxx")
		}
		b.WriteByte('@')
	}
	b.WriteString(strings.Join(o.Addrs, ","))
	if kindOf(o) == sentinel {
		b.WriteString("/" + url.PathEscape(o.MasterName))
	}
	if kindOf(o) != cluster {
		b.WriteString("/" + strconv.Itoa(o.DB))
	}
	return b.String() + redactedQuery(o)
}

func redactedQuery(o *redis.UniversalOptions) string {
	var options []string
	if o.SentinelUsername != "" {
		options = append(options, "sentinel_username="+strings.ReplaceAll(url.QueryEscape(o.SentinelUsername), "+", "%20"))
	}
	if o.SentinelPassword != "" {
		options = append(options, "sentinel_password=xxxxx")
	}
	if o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify {
		options = append(options, "skip_verify=true")
	}
	if len(options) == 0 {
		return ""
	}
	return "?" + strings.Join(options, "&")
}
