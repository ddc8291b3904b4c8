package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3"
)

// A Preview describes a migration that [Up] would apply.
type Preview struct {
	Version   int64  `json:"version"`
	File      string `json:"file"`
	Table     string `json:"table"`     // that an ALTER changes; empty: it only creates tables
	Algorithm string `json:"algorithm"` // of the ALTER on MySQL: INSTANT, INPLACE or COPY
	Measured  string `json:"measured"`  // time of the ALTER with ten million rows in the table
	SQL       string `json:"sql"`
}

// Previews returns the migrations that [Up] would apply, the first one first. It changes nothing.
// Its error wraps [ErrSchema] under the conditions of Up.
func Previews(ctx context.Context, db *sql.DB) (list []Preview, err error) {
	if err := RefuseNewer(ctx, db); err != nil {
		return nil, err
	}
	all, err := Status(ctx, db)
	for _, s := range all {
		if s.State != goose.StatePending {
			continue
		}
		text, err := files.ReadFile(s.Source.Path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.Source.Path, err)
		}
		list = append(list, preview(s.Source, string(text)))
	}
	return list, err
}

var (
	createTable  = regexp.MustCompile(`(?ms)^(CREATE TABLE .*?);$`)
	oldestColumn = regexp.MustCompile(`(?s)ADD COLUMN (oldest .*?)'\);`)
)

// Tables returns the statements that create the tables that [Up] leaves, with the version table, and
// no rows. Up can run on these tables, and inserts the rows.
func Tables() (list []string, err error) {
	text, err := files.ReadFile("00032_baseline.sql")
	if err != nil {
		return nil, err
	}
	for _, m := range createTable.FindAllStringSubmatch(string(text), -1) {
		list = append(list, m[1])
	}
	oldest := strings.ReplaceAll(oldestColumn.FindStringSubmatch(string(text))[1], "''", "'")
	version := strings.NewReplacer("TABLE ", "TABLE IF NOT EXISTS ", ", PRIMARY", ", "+oldest+", PRIMARY").Replace(createVersionSQL)
	return append(list, version), nil
}

var (
	altersLine   = regexp.MustCompile(`(?m)^-- Alters: (\w+), (INSTANT|INPLACE|COPY)\.$`)
	measuredLine = regexp.MustCompile(`(?m)^-- Ten million rows: (.+)\.$`)
)

// preview reads the text of a file.
func preview(source *goose.Source, text string) Preview {
	head, up, _ := strings.Cut(text, "-- +goose Up\n")
	up, _, _ = strings.Cut(up, "-- +goose Down")
	p := Preview{Version: source.Version, File: source.Path, SQL: strings.TrimSpace(up)}
	if m := altersLine.FindStringSubmatch(head); m != nil {
		p.Table, p.Algorithm = m[1], m[2]
	}
	if m := measuredLine.FindStringSubmatch(head); m != nil {
		p.Measured = m[1]
	}
	return p
}

// Locks describes the locks of the migration on tables that exist.
func (p Preview) Locks() string {
	const short = "waits for open transactions that used it, at most 1 s per try; statements that come later wait behind it"
	switch p.Algorithm {
	case "INSTANT":
		return p.Table + ", exclusively for an instant: the ALTER " + short
	case "INPLACE":
		return p.Table + ", exclusively at the start and at the end: the ALTER " + short + ". Otherwise reads and writes continue"
	case "COPY":
		return p.Table + ", against writes, until its rows are copied: run it while few rows wait. The ALTER " + short
	}
	return "no table that exists"
}
