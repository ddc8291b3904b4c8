package keyspace

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A kind of deployment decides which client is built.
type kind uint8

const (
	single kind = iota
	cluster
	sentinel
)

// schemes are what a URL may begin with.
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

// queryOptions are what may follow the question mark.
var queryOptions = map[kind][]string{
	single:   {"db", "skip_verify"},
	cluster:  {"db", "skip_verify"},
	sentinel: {"db", "master", "sentinel_password", "sentinel_username", "skip_verify"},
}

// An address is a URL, read. Hosts are host:port.
type address struct {
	kind               kind
	tls, skipVerify    bool
	hosts              []string
	username, password string
	db                 int

	master                             string
	sentinelUsername, sentinelPassword string
}

// parseURL reads a URL by hand for two reasons: net/url refuses several hosts,
// and its errors quote the text, where a password with a stray character in
// it may stand in any place. The errors here quote nothing but what can't be
// part of a password.
func parseURL(raw string) (address, error) {
	name, rest, ok := strings.Cut(raw, "://")
	scheme, known := schemes[name]
	if !ok || !known {
		return address{}, errors.New("it must begin with redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://")
	}
	a := address{kind: scheme.kind, tls: scheme.tls}

	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return address{}, errors.New("it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?")
	}
	path, query, _ := strings.Cut(tail, "?")

	err := a.readAuthority(authority)
	if err != nil {
		return address{}, err
	}
	options, err := readQuery(query, queryOptions[a.kind])
	if err != nil {
		return address{}, err
	}
	if err := a.readPath(path, options); err != nil {
		return address{}, err
	}
	return a, a.readOptions(options)
}

// readAuthority reads user:password@host:port,host:port.
func (a *address) readAuthority(text string) error {
	hosts := text
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		hosts = text[i+1:]
		username, password, _ := strings.Cut(text[:i], ":")
		var err1, err2 error
		a.username, err1 = url.PathUnescape(username)
		a.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return errors.New("its user or password has a % that is no escape; write %25 for %")
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
		a.hosts = append(a.hosts, hostport)
	}
	return nil
}

// readHost reads host, host:port or [ipv6]:port.
func readHost(text, port string) (string, error) {
	host, rest := text, ""
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return "", errors.New("it opens [ and doesn't close it")
		}
		host, rest = text[1:end], text[end+1:]
		if net.ParseIP(host) == nil {
			return "", errors.New("what stands in [] is no IP address")
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
			return "", errors.New("its port is no number from 1 to 65535")
		}
		port = rest[1:]
	}
	return net.JoinHostPort(host, port), nil
}

// readQuery accepts known options, each once.
func readQuery(query string, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("its query can't be read; write %25 for %, %26 for & and %3B for ;")
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

// readPath reads /db, and for Sentinel /master, /master/db or, where the
// query names the master, /db.
func (a *address) readPath(path string, options map[string]string) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "" {
		parts = nil
	}
	if _, named := options["master"]; a.kind == sentinel && !named && len(parts) > 0 {
		master, err := url.PathUnescape(parts[0])
		if err != nil {
			return errors.New("its master name has a % that is no escape; write %25 for %")
		}
		a.master, parts = master, parts[1:]
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
			a.db = int(db)
		case "skip_verify":
			skip, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Errorf("its option skip_verify is %q: it must be true or false", value)
			}
			a.skipVerify = skip
		case "master":
			a.master = value
		case "sentinel_username":
			a.sentinelUsername = value
		case "sentinel_password":
			a.sentinelPassword = value
		}
	}
	if a.kind == sentinel && a.master == "" {
		return errors.New("it names no master; write redis+sentinel://host:port/master")
	}
	return nil
}

// redacted is the address as a URL, with passwords masked.
func (a address) redacted() string {
	var b strings.Builder
	for name, s := range schemes {
		if s.kind == a.kind && s.tls == a.tls {
			b.WriteString(name)
		}
	}
	b.WriteString("://")
	if a.username != "" || a.password != "" {
		b.WriteString(url.PathEscape(a.username))
		if a.password != "" {
			b.WriteString(":xxxxx")
		}
		b.WriteByte('@')
	}
	b.WriteString(strings.Join(a.hosts, ","))
	if a.kind == sentinel {
		b.WriteString("/" + url.PathEscape(a.master))
	}
	if a.kind != cluster {
		b.WriteString("/" + strconv.Itoa(a.db))
	}
	return b.String() + a.redactedQuery()
}

func (a address) redactedQuery() string {
	var options []string
	if a.sentinelUsername != "" {
		options = append(options, "sentinel_username="+url.QueryEscape(a.sentinelUsername))
	}
	if a.sentinelPassword != "" {
		options = append(options, "sentinel_password=xxxxx")
	}
	if a.skipVerify {
		options = append(options, "skip_verify=true")
	}
	if len(options) == 0 {
		return ""
	}
	return "?" + strings.Join(options, "&")
}
