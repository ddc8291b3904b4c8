package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
)

// task is the name of the lock between processes.
const task = "capture"

// Apply creates missing triggers and drops superfluous ones, each new trigger before the old one,
// and calls did for each statement. Processes run one at a time. A second call changes nothing.
// Writes continue meanwhile: a statement waits at most a second for its table, and then pauses as
// long to let queued statements through.
func (c *Capturer) Apply(ctx context.Context, did func(Change)) error {
	return c.inTurn(ctx, func(turn *schema.Turn, conn *sql.Conn) error {
		changes, definer, err := c.rehearse(ctx)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if change.Create != "" {
				if err := c.runDDL(ctx, turn, conn, "the trigger on "+change.Table(), change.Want.SQL(change.Create, definer)); err != nil {
					return explained(fmt.Errorf("create trigger %s %s on %s: %w", change.Create, change.Event(), change.Table(), err), change, definer)
				}
				did(Change{State: change.State, Want: change.Want, Create: change.Create})
			}
			if change.Have != nil && change.Differs() {
				if err := c.drop(ctx, turn, conn, *change.Have); err != nil {
					return err
				}
				did(Change{State: change.State, Have: change.Have})
			}
		}
		return nil
	})
}

// Rehearse returns the changes that Apply would make, or the error of its start, and changes
// nothing.
func (c *Capturer) Rehearse(ctx context.Context) ([]Change, error) {
	changes, _, err := c.rehearse(ctx)
	return changes, err
}

func (c *Capturer) rehearse(ctx context.Context) (changes []Change, definer Account, err error) {
	changes, wanted, definer, err := c.plan(ctx)
	if err == nil {
		err = c.ready(ctx, wanted, definer, changes)
	}
	return changes, definer, err
}

// ready checks everything that could make writes fail once the triggers exist.
func (c *Capturer) ready(ctx context.Context, wanted *Wanted, definer Account, changes []Change) error {
	if err := schema.Check(ctx, c.DB); err != nil {
		return err
	}
	for _, change := range changes {
		if change.State == Unknown {
			return change.hiddenError()
		}
	}
	return errors.Join(c.checkBinaryLog(ctx, wanted, changes), c.requireDefiner(ctx, wanted, definer))
}

func (c Change) hiddenError() error {
	return fmt.Errorf("the account may not see the triggers of %s; GRANT TRIGGER ON it", c.Table())
}

// Contract: no lock; two settings.
const binaryLogSQL = "SELECT @@GLOBAL.log_bin AND NOT @@GLOBAL.log_bin_trust_function_creators"

// checkBinaryLog returns an error if the server would refuse the triggers of this account (1419).
func (c *Capturer) checkBinaryLog(ctx context.Context, wanted *Wanted, changes []Change) error {
	if !slices.ContainsFunc(changes, func(change Change) bool { return change.Create != "" }) {
		return nil
	}
	guarded, err := askServer[bool](ctx, c.DB, "the binary log", binaryLogSQL)
	if err != nil {
		return err
	}
	g, err := sessionGrants(ctx, c.DB, wanted.mariaDB)
	if err != nil || g == nil || !guarded || g.On("SUPER", "", "") {
		return err
	}
	return errors.New("the server has a binary log and lets only accounts with SUPER create triggers (1419); " + binaryLogCure)
}

// binaryLogCure is the fix for an account without SUPER.
const binaryLogCure = "SET GLOBAL log_bin_trust_function_creators = 1, also in the server's configuration, or GRANT SUPER ON *.* to the account, " +
	"or run the output of 'unstale capture sql' as an administrator"

// Drop drops all triggers of unstale, or those that chosen selects, and calls did for each.
func (c *Capturer) Drop(ctx context.Context, chosen func(Existing) bool, did func(Existing)) error {
	return c.inTurn(ctx, func(turn *schema.Turn, conn *sql.Conn) error {
		existing, err := ReadExisting(ctx, c.DB)
		if err != nil {
			return err
		}
		for _, e := range existing {
			if !chosen(e) {
				continue
			}
			if err := c.drop(ctx, turn, conn, e); err != nil {
				return err
			}
			did(e)
		}
		return nil
	})
}

// Contract: an exclusive metadata lock on the table, with a wait of at most a second; repeating it
// does nothing.
func (c *Capturer) drop(ctx context.Context, turn *schema.Turn, conn *sql.Conn, e Existing) error {
	if err := c.runDDL(ctx, turn, conn, "the trigger on "+e.Table, "DROP TRIGGER IF EXISTS "+quote(e.Name)); err != nil {
		return fmt.Errorf("drop trigger %s of %s: %w", e.Name, e.Table, err)
	}
	return nil
}

// Contract: of the session only.
const sessionSQL = "SET SESSION lock_wait_timeout = 1, sql_mode = '" + SQLMode + "', time_zone = '+00:00'"

// inTurn gives fn a connection in a session with the settings for creating triggers.
func (c *Capturer) inTurn(ctx context.Context, fn func(*schema.Turn, *sql.Conn) error) error {
	return schema.InTurn(ctx, c.DB, task, c.Notify, func(turn *schema.Turn) error {
		conn, err := c.DB.Conn(ctx)
		if err != nil {
			return err
		}
		defer dberr.Discard(conn)
		if _, err := conn.ExecContext(ctx, sessionSQL); err != nil {
			return fmt.Errorf("prepare the session: %w", err)
		}
		return fn(turn, conn)
	})
}

func (c *Capturer) runDDL(ctx context.Context, turn *schema.Turn, conn *sql.Conn, what, statement string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted before it; run it again: %w", err)
	}
	return turn.Patiently(ctx, func(error) string { return what }, func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}

// explained adds the fix to an error of the server.
func explained(err error, change Change, definer Account) error {
	switch mysqlerr.Number(err) {
	case mysqlerr.NoSpecialRight:
		return fmt.Errorf("%w; to make triggers for %s the account needs SET_ANY_DEFINER (before MySQL 8.4 SET_USER_ID, in MariaDB SET USER), unless that is itself; "+
			"or run the output of 'unstale capture sql' as an administrator", err, definer)
	case mysqlerr.UnsafeRoutine:
		return fmt.Errorf("%w; %s", err, binaryLogCure)
	case mysqlerr.NoRight:
		return fmt.Errorf("%w; GRANT TRIGGER ON %s to this account", err, quote(change.Table()))
	}
	return err
}

// Statements returns the statements that create all wanted triggers in a database without any, in
// [SQLMode].
func (c *Capturer) Statements(ctx context.Context) ([]string, error) {
	wanted, definer, err := c.wantedTriggers(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, change := range compare(wanted.Triggers, nil, nil, definer, nil) {
		all = append(all, change.Want.SQL(change.Create, definer))
	}
	return all, nil
}

// Script returns statements in the format of the mysql client.
func Script(statements []string) string {
	delimiter := "$$"
	for slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, delimiter) }) {
		delimiter += "$"
	}
	var b strings.Builder
	b.WriteString("-- Triggers keep the sql_mode that they are made in: what is too long must fail, and not be cut.\n")
	b.WriteString("SET @unstale_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = '" + SQLMode + "', SESSION lock_wait_timeout = 1;\n")
	b.WriteString("SET NAMES utf8mb4;\nDELIMITER " + delimiter + "\n")
	for _, s := range statements {
		b.WriteString("\n" + s + delimiter + "\n")
	}
	b.WriteString("\nDELIMITER ;\nSET SESSION sql_mode = @unstale_sql_mode;\n")
	return b.String()
}

// WriteMetrics writes the result of a comparison of the triggers with the map, in the Prometheus
// text format.
func WriteMetrics(w io.Writer, differences int, at time.Time) error {
	_, err := fmt.Fprintf(w, `# HELP unstale_capture_differences Triggers that differ from the map or cannot be seen, and definers that lack a privilege.
# TYPE unstale_capture_differences gauge
unstale_capture_differences %d
# HELP unstale_capture_compared_at_seconds Unix time of the comparison.
# TYPE unstale_capture_compared_at_seconds gauge
unstale_capture_compared_at_seconds %d
`, differences, at.Unix())
	return err
}

// Differences returns how many triggers differ from the map or cannot be seen. An error of Examine
// counts as one more.
func Differences(changes []Change, err error) (n int) {
	for _, change := range changes {
		if change.Differs() {
			n++
		}
	}
	if err != nil {
		n++
	}
	return n
}
