package keyspace

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A kind of deployment decides which client is built.
type kind uint8

const (
	single kind = iota
	cluster
	sentinel
)

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

// ParseURL parses the address of Redis. The URL is one of
//
//	redis://user:password@host:port/db
//	redis+cluster://user:password@host:port,host:port
//	redis+sentinel://user:password@host:port,host:port/master/db
//	redis+sentinel://user:password@host:port,host:port/db?master=name
//
// and the same with rediss for TLS, which forceTLS enables for every scheme: 1.2 or newer, with the
// authorities of the system. Ports default to 6379, those of sentinels to 26379. Query options: db;
// skip_verify=true (TLS without checking the certificate); for Sentinel master, sentinel_username
// and sentinel_password. Any other option is refused.
//
// It does not use net/url for two reasons: net/url refuses several hosts, and its errors quote the
// text, where a password with a stray character can be at any place. The errors here quote only
// parts that cannot belong to a password.
func ParseURL(raw string, forceTLS bool) (*redis.UniversalOptions, error) {
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
	return a.redis, nil
}

// An address is a URL that is being read.
type address struct {
	kind  kind
	redis *redis.UniversalOptions
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
	if rest != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(rest, ":"), 10, 16)
		if err != nil || n == 0 || rest[0] != ':' {
			return "", errors.New("its port is not a number from 1 to 65535")
		}
		port = rest[1:]
	}
	return net.JoinHostPort(host, port), nil
}

// readQuery accepts known options, each once.
func readQuery(query string, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("its query cannot be read; write %25 for %, %26 for & and %3B for ;")
	}
	options := map[string]string{}
	for name, list := range values {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("it has an unknown option %q; known are %s", name, strings.Join(known, ", "))
		}
		if len(list) > 1 {
			return nil, fmt.Errorf("it gives the option %s twice", name)
		}
		options[name] = list[0]
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
				return fmt.Errorf("its database is %q: it must be a number, 0 or more", value)
			}
			a.redis.DB = int(db)
		case "skip_verify":
			skip, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Errorf("its option skip_verify is %q: it must be true or false", value)
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

// redacted shows where options lead as a URL, with passwords masked.
func redacted(o *redis.UniversalOptions) string {
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
		options = append(options, "sentinel_username="+url.QueryEscape(o.SentinelUsername))
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
