package capture

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/schema"
)

// An Existing is a trigger of unstale in the database.
type Existing struct {
	Trigger
	Name    string
	Definer string // as user@host
	Mode    string // sql_mode at its creation
	Created time.Time
}

// Contract: no lock; the dictionary. An account without the privilege TRIGGER on a table sees none
// of its triggers, and no error. The order is bytewise, since collations differ in the place of an
// underscore.
const existingSQL = `SELECT trigger_name, event_object_table, action_timing, event_manipulation, action_statement, definer, sql_mode,
COALESCE(UNIX_TIMESTAMP(created), 0) FROM information_schema.triggers
WHERE ` + schema.OwnTriggers + ` ORDER BY CAST(event_object_table AS BINARY), trigger_name`

// ReadExisting returns the triggers of unstale that the account can see.
func ReadExisting(ctx context.Context, db *sql.DB) ([]Existing, error) {
	return list(ctx, db, "the triggers", func(scan func(...any) error) (e Existing, err error) {
		var created float64
		err = scan(&e.Name, &e.Table, &e.Timing, &e.Event, &e.Body, &e.Definer, &e.Mode, &created)
		e.Created = time.UnixMilli(int64(created * 1000)).UTC()
		return e, err
	}, existingSQL)
}

// Contract: no lock; the dictionary.
const originalSQL = "SHOW CREATE TRIGGER "

// readOriginals corrects the bodies of triggers that have the name of a wanted one, or had it in
// earlier versions. The list of the dictionary shows literals with resolved escapes and character
// sets, and without characters that the server's character set lacks.
func readOriginals(ctx context.Context, db *sql.DB, existing []Existing, wanted []Trigger) error {
	for i := range existing {
		for _, w := range wanted {
			for _, t := range []*Trigger{&w, w.older()} {
				if err := readOriginal(ctx, db, &existing[i], t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func readOriginal(ctx context.Context, db *sql.DB, e *Existing, t *Trigger) error {
	if e.Body == t.Body || !strings.HasPrefix(e.Name, t.Name(1)) {
		return nil
	}
	texts, err := list(ctx, db, "the trigger "+e.Name, func(scan func(...any) error) (text string, err error) {
		var rest any
		err = scan(&rest, &rest, &text, &rest, &rest, &rest, &rest)
		return text, err
	}, originalSQL+quote(e.Name))
	if err == nil && len(texts) == 1 && strings.HasSuffix(texts[0], t.Body) {
		e.Body = t.Body
	}
	return err
}

// isStrict reports whether the trigger was created in a mode that does not truncate values.
func (e Existing) isStrict() bool { return strings.Contains(e.Mode, "STRICT_ALL_TABLES") }
