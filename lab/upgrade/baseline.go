package upgrade

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/lab/rig"
)

// older is the version of the schemas that are older than the baseline.
const older = 20

// Baseline checks that the first migration of the present release leaves what the steps before it
// left, and that a database with an older version becomes the same: the present release refuses it
// with the commit, whose program migrates it. It lists what is wrong. The error is the reason for a
// missing result.
func Baseline(ctx context.Context, cfg BaselineConfig) (wrong []string, err error) {
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	server, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: rig.MySQLArgs})
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }() // a private server
	b := &baseline{cfg: cfg, server: server}
	want := ""
	for _, way := range []struct {
		name    string
		prepare func(context.Context, *place) error
	}{{"empty", nil}, {"stepped", b.stepped}, {"older", b.older}, {"interrupted", b.interrupted}} {
		got, err := b.dump(ctx, way.name, way.prepare)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			b.wrong = append(b.wrong, fmt.Sprintf("the database %s: %v", way.name, err))
		case want == "":
			want = got
		case got != want:
			b.wrong = append(b.wrong, fmt.Sprintf("the database %s differs from the empty one, for example in %q", way.name, differences(got, want)))
		}
		fmt.Fprintf(cfg.Progress, "upgrade: the database %s: its dump has %d lines; wrong so far: %d\n", way.name, strings.Count(got, "\n"), len(b.wrong))
	}
	return b.wrong, nil
}

// differences returns up to five lines that only one of two texts has.
func differences(a, b string) (list []string) {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		have := strings.Split(pair[1], "\n")
		for line := range strings.SplitSeq(pair[0], "\n") {
			if !slices.Contains(have, line) {
				list = append(list, line)
			}
		}
	}
	return list[:min(5, len(list))]
}

type baseline struct {
	cfg    BaselineConfig
	server *servers.MySQL
	wrong  []string
}

// dump creates a database, prepares it, has the present program migrate it, and describes it.
func (b *baseline) dump(ctx context.Context, name string, prepare func(context.Context, *place) error) (text string, err error) {
	p, err := b.open(ctx, name)
	if err != nil {
		return "", err
	}
	defer p.db.Close()
	if prepare != nil {
		if err := prepare(ctx, p); err != nil {
			return "", err
		}
	}
	if _, err := p.call(ctx, b.cfg.New, "migrate", "up"); err != nil {
		return "", err
	}
	return schematest.Dump(ctx, p.db)
}

// A place is a database that comes to the present schema on its own way.
type place struct {
	name, dsn string
	db        *sql.DB
}

func (b *baseline) open(ctx context.Context, name string) (*place, error) {
	database := "baseline_" + name
	if err := rig.Prepare(ctx, b.server, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", rig.DSN(b.server, database))
	return &place{name: name, dsn: b.server.DSN(database), db: db}, err
}

// call runs a program on the database and returns what it printed.
func (p *place) call(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "MYSQL_DSN="+p.dsn)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (b *baseline) stepped(ctx context.Context, p *place) error {
	_, err := p.call(ctx, b.cfg.Steps, "migrate", "up")
	return err
}

// older makes an older schema with rows, and has the program of the steps migrate it. The rows must
// stay.
func (b *baseline) older(ctx context.Context, p *place) error {
	if err := b.back(ctx, p); err != nil {
		return err
	}
	return b.through(ctx, p)
}

// interrupted is older with a migration that ended before its version was written.
func (b *baseline) interrupted(ctx context.Context, p *place) error {
	if err := b.back(ctx, p); err != nil {
		return err
	}
	text, err := p.call(ctx, b.cfg.Steps, "migrate", "up", "--dry-run", "--json")
	if err != nil {
		return err
	}
	var out struct{ Migrations []struct{ SQL string } }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return err
	}
	conn, err := p.db.Conn(ctx) // the statements share variables
	if err != nil {
		return err
	}
	for statement := range strings.SplitSeq(out.Migrations[0].SQL, ";\n") {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", statement, err), conn.Close())
		}
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return b.through(ctx, p)
}

// back makes an older schema by steps back, and writes rows.
func (b *baseline) back(ctx context.Context, p *place) error {
	if _, err := p.call(ctx, b.cfg.Steps, "migrate", "up"); err != nil {
		return err
	}
	for version := int64(schema.Baseline); version > older; {
		if _, err := p.call(ctx, b.cfg.Steps, "migrate", "down", "--force"); err != nil {
			return err
		}
		have, err := schema.Read(ctx, p.db)
		if err != nil {
			return err
		}
		if version = have; version < older {
			return fmt.Errorf("a step back goes to version %d, and not to version %d", version, older)
		}
	}
	for _, statement := range []string{
		"INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('thing', '1', '{}')",
		"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '2', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// through has the present program refuse the schema, and the program of the steps migrate it.
func (b *baseline) through(ctx context.Context, p *place) error {
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "up", "--dry-run"}, {"migrate", "status"}, {"status"}} {
		out, err := p.call(ctx, b.cfg.New, args...)
		want := fmt.Sprintf("it has version %d, this binary needs ", older)
		if err == nil || !strings.Contains(out, want) || !strings.Contains(out, schema.ErrOlder.Error()) {
			b.wrong = append(b.wrong, fmt.Sprintf("the database %s: %s printed %q (%v), must have %q and the commands", p.name, strings.Join(args, " "), out, err, want))
		}
	}
	if _, err := p.call(ctx, b.cfg.Steps, "migrate", "up"); err != nil {
		return err
	}
	var rows int
	err := p.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM cache_outbox) + (SELECT COUNT(*) FROM cache_outbox_delayed)").Scan(&rows)
	if err == nil && rows != 2 {
		b.wrong = append(b.wrong, fmt.Sprintf("the database %s: 2 rows were written, and it has %d", p.name, rows))
	}
	return err
}
