package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/migrations"
)

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
	s, err := store.Open(store.Config{MySQL: config, Worker: command, Operator: operator(), LookupTimeout: f.lookupTimeout})
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
	if grant := store.MissingGrant(err); grant != "" && !strings.Contains(err.Error(), "GRANT ") {
		return fmt.Errorf("%w; %s", err, granted(grant))
	}
	if fix := store.Fix(err); fix != "" {
		return fmt.Errorf("%w; %s", err, fix)
	}
	return err
}

// granted is the cure for a right that is missing.
func granted(grant string) string {
	return grant + " to this account; docs/accounts.md lists the grants"
}

// redacted shows where a DSN leads and hides the password.
func redacted(cfg *mysql.Config) string {
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}
