package main

import (
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

// redisFlags are the flags for Redis.
type redisFlags struct {
	url     secret
	tls     bool
	files   credentials.TLSFiles
	cache   int
	state   int
	timeout time.Duration
	sharded bool // Pub/Sub
	key     secret
}

const unsetDB = redisurl.UnsetDB

func (f *redisFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.url, "redis-url", "Redis: redis://, rediss://, redis+cluster:// or redis+sentinel://")
	flags.BoolVar(&f.tls, "redis-tls", false, "use TLS with any URL")
	addTLS(flags, &f.files, "redis")
	flags.IntVar(&f.cache, "redis-db-cache", unsetDB, "database of the cache, if the URL names none or the same (-1: the URL's)")
	flags.IntVar(&f.state, "redis-db-state", unsetDB, "database of sessions, limits and locks; never touched here, only refused if it is also the cache's (-1: none)")
	flags.BoolVar(&f.sharded, "redis-sharded-pubsub", false, "publish with SPUBLISH, for subscribers that use SSUBSCRIBE")
	flags.DurationVar(&f.timeout, "redis-timeout", 200*time.Millisecond, "for one Redis command")
}

// addKey adds the flag of commands that publish.
func (f *redisFlags) addKey(flags *pflag.FlagSet) {
	flags.Var(&f.key, "message-key", "secret that signs messages, at least 16 bytes; better set as a variable or a file")
}

// messageKey returns nil without a key.
func (f *redisFlags) messageKey() protocol.MessageKey {
	if key := strings.TrimSpace(f.key.text); key != "" {
		return protocol.MessageKey(key)
	}
	return nil
}

// optionFlags names the flags that options come from.
var optionFlags = strings.NewReplacer("option Timeout", "--redis-timeout", "option DB", "--redis-db-cache",
	"option WaitReplicas", "--redis-wait", "option SweepShare", "--sweep-share", "option MessageKey", "--message-key")

// variableFlags names the flags of variables.
var variableFlags = strings.NewReplacer("REDIS_URL_FILE", "REDIS_URL_FILE", "REDIS_URL", "--redis-url", "REDIS_DB_CACHE", "--redis-db-cache", "REDIS_DB_STATE", "--redis-db-state")

// address returns what the URL says, and what the other flags change in it.
func (f *redisFlags) address() (*redis.UniversalOptions, error) {
	if f.url.text == "" {
		return nil, usageError{errors.New("no Redis given; set --redis-url or REDIS_URL, such as redis://127.0.0.1:6379/0")}
	}
	a, err := redisurl.Settings{
		URL: f.url.text, URLFile: f.url.file, TLS: f.tls, CacheDB: f.cache, StateDB: f.state,
		CAFile: f.files.CA, CertFile: f.files.Cert, KeyFile: f.files.Key, ServerName: f.files.ServerName,
	}.Options(redisurl.Cache)
	if err != nil {
		return nil, usageError{errors.New(variableFlags.Replace(err.Error()))}
	}
	return a, nil
}

// options returns options for commands that neither sweep nor keep a record of unlinked keys.
func (f *redisFlags) options() (keyspace.Options, error) {
	a, err := f.address()
	if err != nil {
		return keyspace.Options{}, err
	}
	o := keyspace.Options{Redis: a, Timeout: f.timeout, ShardedPubSub: f.sharded, MessageKey: f.messageKey()}
	if err := o.WithDefaults().Validate(); err != nil {
		return o, usageError{errors.New(optionFlags.Replace(err.Error()))}
	}
	return o, nil
}
