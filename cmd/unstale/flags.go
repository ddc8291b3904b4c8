package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
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

func (f *redisFlags) addRedisFlags(flags *pflag.FlagSet) {
	flags.Var(&f.url, "redis-url", "Redis: redis://, rediss://, redis+cluster:// or redis+sentinel://")
	flags.BoolVar(&f.tls, "redis-tls", false, "use TLS with any URL")
	addTLS(flags, &f.files, "redis")
	flags.IntVar(&f.cache, "redis-db-cache", unsetDB, "database of the cache, if the URL names none or the same (-1: the URL's)")
	flags.IntVar(&f.state, "redis-db-state", unsetDB, "database of sessions, limits and locks, which doctor checks; other commands only refuse the cache's database (-1: none)")
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

// openKeyspace opens it for such a command.
func (f *redisFlags) openKeyspace() (*keyspace.Keyspace, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	return keyspace.Open(options)
}

// onKeyspace runs do on the keyspace, and closes it.
func (f *redisFlags) onKeyspace(do func(*keyspace.Keyspace) error) error {
	k, err := f.openKeyspace()
	if err != nil {
		return err
	}
	return errors.Join(do(k), k.Close())
}

// mysqlFlags are the flags for MySQL.
type mysqlFlags struct {
	dsn           secret
	tls           credentials.TLSFiles
	lookupTimeout time.Duration // only of commands that look up
}

func (f *mysqlFlags) addMySQLFlags(flags *pflag.FlagSet) {
	flags.Var(&f.dsn, "mysql-dsn", "MySQL, as user:password@tcp(host:3306)/database")
	addTLS(flags, &f.tls, "mysql")
}

// addLookups adds the flags of commands with lookups.
func (f *mysqlFlags) addLookups(flags *pflag.FlagSet) {
	flags.DurationVar(&f.lookupTimeout, "lookup-timeout", session.Config{}.WithDefaults().LookupTimeout, "for one lookup of the map, on the server")
}

// config returns what the DSN says.
func (f *mysqlFlags) config() (*mysql.Config, error) {
	if f.dsn.text == "" {
		return nil, usageError{errors.New("no MySQL given; set --mysql-dsn or MYSQL_DSN to user:password@tcp(host:3306)/database")}
	}
	config, err := session.ParseDSN(f.dsn.text)
	if err != nil {
		return nil, usageError{err}
	}
	if err := session.Follow(config, f.dsn.file, f.tls); err != nil {
		return nil, usageError{err}
	}
	return config, nil
}

// open returns sessions for a command, whose name the server lists.
func (f *mysqlFlags) open(command string) (*session.Sessions, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	s, err := session.Open(session.Config{MySQL: config, Worker: command, Operator: operator(), LookupTimeout: f.lookupTimeout})
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// inSessions runs do on sessions of a command, and closes them.
func (f *mysqlFlags) inSessions(command string, do func(*session.Sessions) error) error {
	s, err := f.open(command)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// onSessions is inSessions for commands that use the outbox: see orSchema.
func (f *mysqlFlags) onSessions(ctx context.Context, command string, do func(*session.Sessions) error) error {
	return f.inSessions(command, func(s *session.Sessions) error { return orSchema(ctx, s, do(s)) })
}

// orSchema returns err, or in its place that the schema does not fit, which is then the cause and
// has a cure. It does not ask a server again that has not answered.
func orSchema(ctx context.Context, s *session.Sessions, err error) error {
	switch {
	case err == nil:
		return nil
	case session.Unanswered(err):
		return session.Explain(err)
	}
	if schema := migrations.Check(ctx, s.DB()); errors.Is(schema, migrations.ErrSchema) {
		return schema
	}
	return session.Explain(err)
}

// redacted shows where a DSN leads, and whether it checks certificates. It hides the password.
func redacted(cfg *mysql.Config) string {
	text := fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
	if cfg.TLSConfig != "" {
		text += "?tls=" + cfg.TLSConfig
	}
	return text
}

// logFlags choose how the log looks.
type logFlags struct{ format, level string }

func (f *logFlags) addLogFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
}

func (f *logFlags) logger(p process) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError{fmt.Errorf("log-level %q: must be debug, info, warn or error", f.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	auto := f.format == "auto"
	switch {
	case f.format == "text", auto && onTerminal(p.Err):
		return slog.New(slog.NewTextHandler(p.Err, options)), nil
	case f.format == "json", auto:
		return slog.New(slog.NewJSONHandler(p.Err, options)), nil
	}
	return nil, usageError{fmt.Errorf("log-format %q: must be auto, text or json", f.format)}
}

// addTLS adds the flags for certificates of the connections to a server, mysql or redis.
func addTLS(flags *pflag.FlagSet, f *credentials.TLSFiles, server string) {
	flags.StringVar(&f.CA, server+"-tls-ca-file", "", "file of the authorities that may sign the server's certificate; turns TLS on")
	flags.StringVar(&f.Cert, server+"-tls-cert-file", "", "file of the client's certificate; turns TLS on")
	flags.StringVar(&f.Key, server+"-tls-key-file", "", "file of the client's key")
	flags.StringVar(&f.ServerName, server+"-tls-server-name", "", "name that the server's certificate must have, if not the host's; turns TLS on")
}

// A secret is the value of a flag that no output may show. Its variable may be replaced by one for
// a file: see applyEnv.
type secret struct {
	text string
	file string // that text was read from, or ""
}

// Set implements pflag.Value.
func (s *secret) Set(text string) error {
	*s = secret{text: text}
	return nil
}

// String implements pflag.Value.
func (s *secret) String() string { return s.text }

// Type implements pflag.Value.
func (s *secret) Type() string { return "string" }

// addParams adds --param, which may be given often. A comma never splits: values are text.
func addParams(flags *pflag.FlagSet) *[]string {
	return flags.StringArray("param", nil, "a parameter as name=value; given twice, the name is a list")
}

// parseParams turns name=value pairs into parameters, in the order of first appearance. A name that
// is given twice is a list.
func parseParams(pairs []string) (invalidation.Params, error) {
	var params invalidation.Params
	at := map[string]int{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--param %q: must be name=value", pair)}
		}
		if i, known := at[name]; known {
			params[i].Values = append(params[i].Values, value)
			params[i].List = true
			continue
		}
		at[name] = len(params)
		params = append(params, invalidation.Param{Name: name, Values: []string{value}})
	}
	return params, nil
}

// paramsJSON writes parameters in the form of a row.
func paramsJSON(params invalidation.Params) (json.RawMessage, error) {
	if len(params) == 0 {
		return nil, nil
	}
	object := make(map[string]any, len(params))
	for _, p := range params {
		if p.List {
			object[p.Name] = p.Values
		} else {
			object[p.Name] = p.Values[0]
		}
	}
	return json.Marshal(object)
}

// completeValues lets shells complete the values of flags and arguments of a command: entities of
// the map, reasons, and other closed sets.
func completeValues(p process, cmd *cobra.Command) {
	values := map[string]cobra.CompletionFunc{
		"entity": p.completeEntity, "set-entity": p.completeEntity, "check": oneOf(checkNames()...),
		"format": oneOf(protocol.FormatEvent, protocol.FormatArray), "lang": oneOf("go"),
		"log-format": oneOf("auto", "text", "json"), "log-level": oneOf("debug", "info", "warn", "error"),
	}
	switch {
	case cmd.Name() == "pause": // its reason is free text
	case cmd.HasParent() && cmd.Parent().Name() == "delayed":
		values["reason"] = oneOf(store.DelayedReasons()...)
	default:
		values["reason"] = oneOf(invalidation.Reasons()...)
	}
	for name, complete := range values {
		if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() != "bool" {
			cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, complete))
		}
	}
	switch cmd.Name() {
	case "acl":
		cmd.ValidArgsFunction = firstArgument(oneOf(doctor.ACLRoles...))
	case "enqueue":
		cmd.ValidArgsFunction = firstArgument(p.completeEntity)
	}
}

// completeEntity returns the entities of the map that --map or UNSTALE_MAP names. A map that cannot
// be loaded has none.
func (p process) completeEntity(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	file := defaultMap
	if given, _ := p.Env(envName("map")); given != "" {
		file = given
	}
	if f := cmd.Flags().Lookup("map"); f != nil && f.Changed {
		file = f.Value.String()
	}
	if m, err := loadMap(p, file); err == nil {
		names = m.Entities()
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// oneOf completes a closed set.
func oneOf[T ~string](set ...T) cobra.CompletionFunc {
	var values []string
	for _, value := range set {
		values = append(values, string(value))
	}
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// firstArgument completes the first argument of a command only.
func firstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}
