package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/migrations"
)

// envName is the variable that stands in for a flag: --mysql-dsn and MYSQL_DSN are one name. Flags of our own carry the
// prefix UNSTALE_, so that a variable called MAP or LISTEN of somebody else does not reach us.
func envName(flag string) string {
	name := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if strings.HasPrefix(name, "MYSQL_") || name == "REDIS_URL" || name == "REDIS_TLS" || strings.HasPrefix(name, "REDIS_DB_") {
		return name
	}
	return "UNSTALE_" + name
}

// noEnv marks flags that belong to one call and have no variable, such as --json.
const noEnv = "unstale-no-env"

// showEnv adds the variable's name to each flag's help. Call it when all flags are there.
func showEnv(flags *pflag.FlagSet, perCall ...string) {
	for _, name := range perCall {
		flag := flags.Lookup(name)
		if flag.Annotations == nil {
			flag.Annotations = map[string][]string{}
		}
		flag.Annotations[noEnv] = []string{"true"}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[noEnv] == nil {
			f.Usage += " [" + envName(f.Name) + "]"
		}
	})
}

// refuseEmpty refuses flags of a choice that were given without a value, as by "--entity $UNSET" in a script: they
// would choose everything.
func refuseEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		if !f.Changed {
			continue
		}
		switch f.Value.String() {
		case "":
			return usageError{fmt.Errorf("--%s is empty; give it a value, or leave it out", name)}
		case "0s":
			return usageError{fmt.Errorf("--%s is 0; give it a time such as 10m, or leave it out", name)}
		}
	}
	return nil
}

// applyEnv gives each flag that was not set the value of its variable. An empty variable counts as unset.
func applyEnv(flags *pflag.FlagSet, env func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := env(envName(f.Name))
		if f.Changed || !ok || value == "" || f.Annotations[noEnv] != nil || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", envName(f.Name), errors.Unwrap(err)))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// mysqlFlags say how to reach MySQL.
type mysqlFlags struct {
	dsn           string
	lookupTimeout time.Duration // only of commands that look up
}

func (f *mysqlFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.dsn, "mysql-dsn", "", "MySQL, as user:password@tcp(host:3306)/database")
}

// addLookups is for commands that look up.
func (f *mysqlFlags) addLookups(flags *pflag.FlagSet) {
	flags.DurationVar(&f.lookupTimeout, "lookup-timeout", store.Config{}.WithDefaults().LookupTimeout, "for one lookup of the map, on the server")
}

// config is what the DSN says.
func (f *mysqlFlags) config() (*mysql.Config, error) {
	if f.dsn == "" {
		return nil, usageError{errors.New("no MySQL given; set --mysql-dsn or MYSQL_DSN to user:password@tcp(host:3306)/database")}
	}
	config, err := store.ParseDSN(f.dsn)
	if err != nil {
		return nil, usageError{err}
	}
	return config, nil
}

// open returns a store for a command, which is called so in the server's list of sessions.
func (f *mysqlFlags) open(command string) (*store.Store, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{MySQL: config, Worker: command, LookupTimeout: f.lookupTimeout})
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// orSchema returns err, or in its place that the schema does not fit, which is then the cause and has a cure.
func orSchema(ctx context.Context, s *store.Store, err error) error {
	if err == nil {
		return nil
	}
	if schema := migrations.Check(ctx, s.DB()); errors.Is(schema, migrations.ErrSchema) {
		return schema
	}
	return err
}

// redacted shows where a DSN leads and hides the password.
func redacted(cfg *mysql.Config) string {
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}

// redisFlags say how to reach Redis.
type redisFlags struct {
	url     string
	tls     bool
	cache   int
	state   int
	timeout time.Duration
	sharded bool // Pub/Sub
}

const unsetDB = -1

func (f *redisFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "redis-url", "", "Redis: redis://, rediss://, redis+cluster:// or redis+sentinel://")
	flags.BoolVar(&f.tls, "redis-tls", false, "use TLS whatever the URL says")
	flags.IntVar(&f.cache, "redis-db-cache", unsetDB, "database of the cache; beats the URL's (-1: the URL's)")
	flags.IntVar(&f.state, "redis-db-state", unsetDB, "database of sessions, limits and locks; never touched here, only refused if it is also the cache's (-1: none)")
	flags.BoolVar(&f.sharded, "redis-sharded-pubsub", false, "publish with SPUBLISH, for subscribers that use SSUBSCRIBE")
	flags.DurationVar(&f.timeout, "redis-timeout", 200*time.Millisecond, "for one Redis command")
}

// optionFlags names the flags that options come from.
var optionFlags = strings.NewReplacer("option Timeout", "--redis-timeout", "option DB", "--redis-db-cache",
	"option WaitReplicas", "--redis-wait", "option SweepShare", "--sweep-share")

// address is what the URL says, and what the other flags change in it.
func (f *redisFlags) address() (*redis.UniversalOptions, error) {
	if f.url == "" {
		return nil, usageError{errors.New("no Redis given; set --redis-url or REDIS_URL, such as redis://127.0.0.1:6379/0")}
	}
	a, err := keyspace.ParseURL(f.url, f.tls)
	if err != nil {
		return nil, usageError{fmt.Errorf("--redis-url: %w", err)}
	}
	if f.cache != unsetDB {
		a.DB = f.cache
	}
	if a.DB == f.state {
		return nil, usageError{fmt.Errorf("the cache's database, of --redis-db-cache or else of --redis-url, and --redis-db-state are both %d; "+
			"what expires and what must stay need databases of their own", a.DB)}
	}
	return a, nil
}

// options are for commands that neither sweep nor remember what they unlinked.
func (f *redisFlags) options() (keyspace.Options, error) {
	a, err := f.address()
	if err != nil {
		return keyspace.Options{}, err
	}
	o := keyspace.Options{Redis: a, Timeout: f.timeout, ShardedPubSub: f.sharded}
	if err := o.WithDefaults().Validate(); err != nil {
		return o, usageError{errors.New(optionFlags.Replace(err.Error()))}
	}
	return o, nil
}

// logFlags choose how the log looks.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
}

func (f *logFlags) logger(p process) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError{fmt.Errorf("log-level %q: wanted debug, info, warn or error", f.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	format := f.format
	if format == "auto" {
		format = "json"
		if file, ok := p.Err.(*os.File); ok && isTerminal(file) {
			format = "text"
		}
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(p.Err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.Err, options)), nil
	}
	return nil, usageError{fmt.Errorf("log-format %q: wanted auto, text or json", f.format)}
}
