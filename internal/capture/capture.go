package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// A Capturer manages the triggers of a map in the database of DB.
type Capturer struct {
	DB       *sql.DB
	Captures []invalidation.Capture
	Definer  Account             // account that the triggers run as; none: the account of DB
	Notify   func(notice string) // progress of Apply's waits; called in the caller's goroutine
}

// A Wanted is the set of triggers of the captures.
type Wanted struct {
	Triggers []Trigger
	Reads    []object     // tables that the triggers select from, in addition to OLD and NEW
	Calls    []object     // functions of the database that the triggers call
	Empty    []Empty      // captures whose ID may be ""
	locks    []foreignKey // whose children triggers lock; MySQL requires a privilege for that
	invokers []string     // functions among these that run as the definer
	mariaDB  bool
}

// Wanted returns the triggers of the captures, from the tables of the database and its foreign
// keys. The error joins all faults.
func (c *Capturer) Wanted(ctx context.Context) (*Wanted, error) {
	keys, err := readForeignKeys(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	functions, err := readFunctions(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	mariaDB, err := isMariaDB(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	wanted, cascades := &Wanted{mariaDB: mariaDB}, newCascaded(keys, mariaDB)
	var faults []error
	for _, group := range byTable(c.Captures) {
		table, err := readTable(ctx, c.DB, mariaDB, group[0].Table)
		if err != nil {
			faults = append(faults, Fault{group[0], err})
			continue
		}
		var writers []*writer
		for _, one := range group {
			w, err := newWriter(one, table)
			found := append(joined(err), joined(w.try(ctx, c.DB))...)
			if len(found) == 0 {
				found = joined(c.cover(ctx, cascades, w))
			}
			if len(found) == 0 {
				wanted.depend(w, functions)
				if column, _ := table.column(w.id.column); column.isText() {
					wanted.Empty = append(wanted.Empty, Empty{one, column})
				}
			}
			for _, fault := range found {
				faults = append(faults, Fault{one, fault})
			}
			writers = append(writers, w)
		}
		if len(faults) == 0 {
			wanted.Triggers = append(wanted.Triggers, ofRows(table.Name, writers)...)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	wanted.Triggers = append(wanted.Triggers, cascades.triggers()...)
	if !mariaDB {
		wanted.locks = cascades.locks
		if err := c.checkNames(wanted.Triggers); err != nil {
			return nil, err
		}
	}
	for _, table := range cascades.reads {
		wanted.Reads = append(wanted.Reads, object{name: table})
	}
	return wanted, nil
}

// checkNames returns an error if MySQL cannot store one of the triggers. MySQL itself would report
// it only after it has created the triggers before.
func (c *Capturer) checkNames(all []Trigger) error {
	for _, t := range all {
		name := t.unstorable()
		if name == "" {
			continue
		}
		i := max(0, slices.IndexFunc(c.Captures, func(one invalidation.Capture) bool { return strings.EqualFold(one.Table, t.Table) }))
		return Fault{c.Captures[i], fmt.Errorf("MySQL cannot store a trigger on %s that names %s (3507), because of its backtick and its letters; rename it, or leave it out of the capture", t.Table, name)}
	}
	return nil
}

// cover adds the effects of foreign keys to a writer. The account must see all of the parents,
// whose keys lead to their own parents.
func (c *Capturer) cover(ctx context.Context, cascades *cascaded, w *writer) error {
	known := len(cascades.order)
	if err := cascades.cover(w); err != nil {
		return err
	}
	for _, name := range cascades.order[known:] {
		parent, _, _ := strings.Cut(name, "\x00")
		if _, err := readTable(ctx, c.DB, cascades.mariaDB, parent); err != nil {
			return fmt.Errorf("its parent %s: %w", parent, err)
		}
	}
	return nil
}

func isMariaDB(ctx context.Context, db *sql.DB) (bool, error) {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return false, fmt.Errorf("ask for the version: %w", err)
	}
	return strings.Contains(version, "MariaDB"), nil
}

// Plan compares the database's triggers with the captures.
func (c *Capturer) Plan(ctx context.Context) ([]Change, error) {
	wanted, definer, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	return c.plan(ctx, wanted, definer)
}

// Examine is like Plan, and also checks that the definer still has the privileges of the triggers.
// The error lists what is missing; the changes are returned in any case.
func (c *Capturer) Examine(ctx context.Context) ([]Change, error) {
	wanted, definer, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := c.plan(ctx, wanted, definer)
	if err == nil {
		err = c.requireDefiner(ctx, wanted, definer)
	}
	return changes, err
}

// look returns the wanted triggers, and the definer.
func (c *Capturer) look(ctx context.Context) (wanted *Wanted, definer Account, err error) {
	if wanted, err = c.Wanted(ctx); err != nil {
		return nil, Account{}, err
	}
	if definer = c.Definer; definer == (Account{}) {
		definer, err = currentAccount(ctx, c.DB)
	}
	return wanted, definer, err
}

func (c *Capturer) plan(ctx context.Context, wanted *Wanted, definer Account) ([]Change, error) {
	existing, err := ReadExisting(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	hidden, err := c.hidden(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if err := readOriginals(ctx, c.DB, existing, wanted.Triggers); err != nil {
		return nil, err
	}
	return compare(wanted.Triggers, existing, definer, hidden), nil
}

// hidden returns the tables whose triggers this account cannot see, by its grants.
func (c *Capturer) hidden(ctx context.Context, wanted *Wanted) (map[string]bool, error) {
	g, err := sessionGrants(ctx, c.DB, wanted.mariaDB)
	if err != nil || g == nil {
		return nil, err
	}
	database, err := database(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	hidden := map[string]bool{}
	for _, t := range wanted.Triggers {
		hidden[t.Table] = !g.On("TRIGGER", database, t.Table)
	}
	return hidden, nil
}

func database(ctx context.Context, db *sql.DB) (name string, err error) {
	if err := db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name); err != nil {
		return "", fmt.Errorf("ask for the database: %w", err)
	}
	return name, nil
}
