package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/migrations"
)

// mysqlFlags are the flags for MySQL.
type mysqlFlags struct {
	dsn           secret
	tls           credentials.TLSFiles
	lookupTimeout time.Duration // only of commands that look up
}

func (f *mysqlFlags) add(flags *pflag.FlagSet) {
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

// orSchema returns err, or in its place that the schema does not fit, which is then the cause and
// has a cure.
func orSchema(ctx context.Context, s *session.Sessions, err error) error {
	if err == nil {
		return nil
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
