package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract: the dictionary of the current schema; no lock on rows. Without the aliases, MySQL 8
// returns upper-case column names.
const enginesSQL = `SELECT table_name AS table_name, engine AS engine FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%' AND engine <> 'InnoDB'`

// A SettingError describes a server setting that breaks claims, and its fix.
type SettingError string

// Error implements error.
func (e SettingError) Error() string { return string(e) }

// Check returns a SettingError for each server setting that breaks claims, or nil. The schema must
// exist (see package migrations).
func (s *Sessions) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return errors.Join(s.checkBinlog(ctx), s.checkEngines(ctx), s.checkAutoInc(ctx))
}

// checkBinlog refuses binlog_format STATEMENT, since READ COMMITTED cannot write a statement-based
// log (error 1665).
func (s *Sessions) checkBinlog(ctx context.Context) error {
	on, err := s.Variable(ctx, "@@GLOBAL.log_bin")
	if err != nil || on != "1" {
		return err
	}
	format, err := s.Variable(ctx, "@@GLOBAL.binlog_format")
	if err == nil && strings.EqualFold(format, "STATEMENT") {
		err = SettingError("binlog_format is STATEMENT, so READ COMMITTED cannot write; set it to ROW or MIXED on the server")
	}
	return err
}

// IsJoining reports whether the server may be a node that joins a group or leaves it: super_read_only
// is on. Its databases may be missing or old until it has joined. It needs no database.
func (s *Sessions) IsJoining(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	config := s.Config.MySQL.Clone()
	config.DBName = ""
	db, err := s.Config.migrating().connect(config, s.Config.Worker, nil)
	if err != nil {
		return false
	}
	defer db.Close()
	var on bool
	return db.QueryRowContext(ctx, "SELECT @@GLOBAL.super_read_only").Scan(&on) == nil && on
}

func (s *Sessions) checkEngines(ctx context.Context) error {
	var tables []struct {
		Name   string `db:"table_name"`
		Engine string `db:"engine"`
	}
	if err := s.Side.SelectContext(ctx, &tables, enginesSQL); err != nil {
		return fmt.Errorf("check table engines: %w", err)
	}
	for _, t := range tables {
		return SettingError(fmt.Sprintf("table %s uses engine %s, which has no transactions; run ALTER TABLE %s ENGINE = InnoDB", t.Name, t.Engine, t.Name))
	}
	return nil
}

// checkAutoInc refuses innodb_autoinc_lock_mode 0: every insert then locks the table's counter
// until its statement ends, so other inserts wait for a long INSERT ... SELECT into cache_outbox.
func (s *Sessions) checkAutoInc(ctx context.Context) error {
	mode, err := s.Variable(ctx, "@@GLOBAL.innodb_autoinc_lock_mode")
	if err == nil && mode == "0" {
		err = SettingError("innodb_autoinc_lock_mode is 0, so inserts wait for each other; set it to 2 (or 1) in the server's configuration")
	}
	return err
}

// Variable returns the value of a server variable such as @@GLOBAL.log_bin, or an empty string if
// the server does not have it.
func (s *Sessions) Variable(ctx context.Context, name string) (string, error) {
	var v string
	err := s.Side.GetContext(ctx, &v, "SELECT "+name)
	if mysqlerr.Number(err) == mysqlerr.UnknownVariable {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("check server settings: %w", err)
	}
	return v, nil
}
