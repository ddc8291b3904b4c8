package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract: the dictionary of the current schema; no lock on rows. The aliases are there because MySQL 8 answers with
// upper-case column names otherwise.
const enginesSQL = `SELECT table_name AS table_name, engine AS engine FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%' AND engine <> 'InnoDB'`

// A SettingError is a setting of the server under which claims would not work, with its cure.
type SettingError string

// Error implements error.
func (e SettingError) Error() string { return string(e) }

// Check looks for settings of the server under which claims would not work, and returns a SettingError for each. It
// expects the schema to be there (see package migrations).
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	return errors.Join(s.checkBinlog(ctx), s.checkEngines(ctx), s.checkAutoInc(ctx))
}

// checkBinlog: READ COMMITTED cannot write a statement-based log (error 1665).
func (s *Store) checkBinlog(ctx context.Context) error {
	on, err := s.Variable(ctx, "@@GLOBAL.log_bin")
	if err != nil || on != "1" {
		return err
	}
	format, err := s.Variable(ctx, "@@GLOBAL.binlog_format")
	if err == nil && strings.EqualFold(format, "STATEMENT") {
		err = SettingError("binlog_format is STATEMENT, with which READ COMMITTED cannot write; set it to ROW or MIXED on the server")
	}
	return err
}

func (s *Store) checkEngines(ctx context.Context) error {
	var tables []struct {
		Name   string `db:"table_name"`
		Engine string `db:"engine"`
	}
	if err := s.side.SelectContext(ctx, &tables, enginesSQL); err != nil {
		return fmt.Errorf("check table engines: %w", err)
	}
	for _, t := range tables {
		return SettingError(fmt.Sprintf("table %s uses engine %s, which has no transactions; run ALTER TABLE %s ENGINE = InnoDB", t.Name, t.Engine, t.Name))
	}
	return nil
}

// checkAutoInc: with 0 every insert holds the table's counter until its statement ends, so that a long INSERT ...
// SELECT into cache_outbox makes the others wait.
func (s *Store) checkAutoInc(ctx context.Context) error {
	mode, err := s.Variable(ctx, "@@GLOBAL.innodb_autoinc_lock_mode")
	if err == nil && mode == "0" {
		err = SettingError("innodb_autoinc_lock_mode is 0, with which inserts wait for each other; set it to 2 (or 1) in the server's configuration")
	}
	return err
}

// Variable reads a variable of the server, such as @@GLOBAL.log_bin; "" where the server does not have it.
func (s *Store) Variable(ctx context.Context, name string) (string, error) {
	var v string
	err := s.side.GetContext(ctx, &v, "SELECT "+name)
	if mysqlerr.Number(err) == mysqlerr.UnknownVariable {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("check server settings: %w", err)
	}
	return v, nil
}
