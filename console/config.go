package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Worker is the worker of this process, such as a *worker.Worker. Its methods are called
// concurrently.
type Worker interface {
	Alive() error
	Ready() error
	Map() *invalidation.Map
	Metrics() prometheus.Collector
}

// A Config configures a [Console]. All fields are optional.
type Config struct {
	// Prefix is the path of the Console, for example "/unstale". It begins with
	// a slash and does not end with one. Default: the root.
	Prefix string

	// MySQL is the database of the outbox, with an operator's account: see docs/accounts.md. The
	// Console opens at most four sessions and closes them. New does not modify it. Nil: the page
	// shows only what Worker knows.
	MySQL *mysql.Config
	// Redis is the server of the cache, with an operator's account, as in worker.Config. New does
	// not modify it. Nil: the page shows neither entries of Redis nor what workers publish there.
	Redis *redis.UniversalOptions
	// Worker is the worker of this process. Nil: none; then the page has no map.
	Worker Worker

	// Actions lets people retry, correct and discard dead letters, pause and resume workers, and
	// replay the journal, if the account has the privileges. Default: the page changes nothing.
	Actions bool
	// MessageKey and RedisShardedPubSub are as for the workers, for the messages of a replay.
	MessageKey         protocol.MessageKey
	RedisShardedPubSub bool

	// Token is a secret that a person enters once per browser, at least 16 bytes. Sessions last 12
	// hours, in every process with the same token.
	Token string
	// TokenFile is a file that has the token. It is read again for each request: a new token ends
	// all sessions. While it cannot be read, the last token counts. Set at most one of the two.
	TokenFile string
	// UserHeader names the header with the authenticated user that a reverse proxy sends, for
	// example X-Forwarded-User. ProxySecret is a secret that the proxy sends in
	// X-Unstale-Proxy-Secret, at least 16 bytes: it proves that a request comes from the proxy. Set
	// both or none, and none with a token.
	UserHeader  string
	ProxySecret string

	// Logger receives errors of the page itself. Default slog.Default().
	Logger *slog.Logger
}

// headerName matches the name of a header that no server or proxy drops.
var headerName = regexp.MustCompile("^[A-Za-z0-9-]+$")

// unreadable are headers that net/http or a proxy consumes.
var unreadable = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// leastSecret is the length of a token or secret, in bytes.
const leastSecret = 16

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate names the field and the rule that it breaks. It asks no server, and reads TokenFile. No
// error contains a secret.
func (c Config) Validate() error {
	switch {
	case c.Prefix != "" && (c.Prefix != path.Clean(c.Prefix) || c.Prefix[0] != '/' || c.Prefix == "/"):
		return fmt.Errorf("prefix %q: must begin with a slash and not end with one, for example /unstale", c.Prefix)
	case strings.ContainsAny(c.Prefix, "{}%?#"):
		return fmt.Errorf("prefix %q: must be a plain path, for example /unstale", c.Prefix)
	case c.Token != "" && c.TokenFile != "":
		return errors.New("a token and a file of a token are given: set one of them")
	case c.hasToken() && c.UserHeader+c.ProxySecret != "":
		return errors.New("a token and a user header or proxy secret are given: set one kind")
	case (c.UserHeader == "") != (c.ProxySecret == ""):
		return errors.New("a user header needs a proxy secret, and a proxy secret a user header: without both, anyone can send the header")
	case c.ProxySecret != "" && len(c.ProxySecret) < leastSecret:
		return fmt.Errorf("the proxy secret has %d bytes: must have at least %d, for example from openssl rand -base64 32", len(c.ProxySecret), leastSecret)
	case c.UserHeader != "" && !headerName.MatchString(c.UserHeader) || slices.Contains(unreadable, http.CanonicalHeaderKey(c.UserHeader)):
		return fmt.Errorf("user header %q: a request cannot have it, or it concerns the connection; use another one, for example X-Forwarded-User", c.UserHeader)
	case http.CanonicalHeaderKey(c.UserHeader) == secretHeader:
		return fmt.Errorf("user header %s: is the header of the secret", c.UserHeader)
	}
	if c.hasToken() {
		if _, err := c.readToken(); err != nil {
			return err
		}
	}
	if c.MySQL != nil {
		if err := c.sessions().WithDefaults().Validate(); err != nil {
			return err
		}
	}
	if c.Redis != nil {
		if err := c.keyspace().WithDefaults().Validate(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
	}
	return nil
}

// ValidateAddress reports whether the page may be served on an address such as 127.0.0.1:9118. An
// address that is not a loopback one needs a token, or a user header and a proxy secret. Names are
// not resolved; localhost is a loopback address.
func (c Config) ValidateAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("address %q: must be host:port, for example 127.0.0.1:9118", address)
	case !isLoopback(host) && !c.authenticates():
		return fmt.Errorf("address %q: is reachable from other hosts, so the console needs a token, or a user header and a proxy secret", address)
	}
	return nil
}

func (c Config) authenticates() bool { return c.hasToken() || c.ProxySecret != "" }

func (c Config) hasToken() bool { return c.Token+c.TokenFile != "" }

// readToken returns the token, also from its file.
func (c Config) readToken() (token string, err error) {
	if token = c.Token; c.TokenFile != "" {
		if token, err = credentials.ReadSecret(c.TokenFile); err != nil {
			return "", fmt.Errorf("the file of the token: %w", err)
		}
		token = strings.TrimSpace(token)
	}
	if len(token) < leastSecret {
		return "", fmt.Errorf("the token has %d bytes: must have at least %d, for example from openssl rand -base64 32", len(token), leastSecret)
	}
	return token, nil
}

func (c Config) sessions() session.Config {
	return session.Config{MySQL: c.MySQL, Worker: "console", StatementTimeout: panelLimit}
}

func (c Config) keyspace() keyspace.Options {
	return keyspace.Options{Redis: c.Redis, MessageKey: c.MessageKey, ShardedPubSub: c.RedisShardedPubSub}
}
