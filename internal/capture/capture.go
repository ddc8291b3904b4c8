package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// A Capturer has the triggers of a map made in the database of DB.
type Capturer struct {
	DB       *sql.DB
	Captures []invalidation.Capture
	Definer  Account             // with whose rights the triggers run; none: the account of DB
	Notify   func(notice string) // of what is waited for, in the caller's goroutine
}

// A Wanted is what the captures ask for.
type Wanted struct {
	Triggers []Trigger
	Reads    []object // tables that the triggers select from, beside OLD and NEW
	Calls    []object // functions of the database that they call
	invokers []string // of these, those that run with the rights of the definer
	mariaDB  bool
}

// Wanted is what the captures ask for, given the tables of the database and its foreign keys. The error joins all faults.
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
		table, err := readTable(ctx, c.DB, group[0].Table)
		if err != nil {
			faults = append(faults, Fault{group[0], err})
			continue
		}
		var writers []*writer
		for _, one := range group {
			w, err := newWriter(one, table)
			if err == nil {
				err = cascades.cover(w)
			}
			if err == nil {
				err = w.try(ctx, c.DB)
			}
			if err == nil {
				wanted.depend(w, functions)
			}
			if err != nil {
				faults = append(faults, Fault{one, err})
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
	for _, table := range cascades.reads {
		wanted.Reads = append(wanted.Reads, object{name: table})
	}
	return wanted, nil
}

func isMariaDB(ctx context.Context, db *sql.DB) (bool, error) {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return false, fmt.Errorf("ask for the version: %w", err)
	}
	return strings.Contains(version, "MariaDB"), nil
}

// Plan says how the database's triggers stand to the captures.
func (c *Capturer) Plan(ctx context.Context) ([]Change, error) {
	wanted, definer, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	return c.plan(ctx, wanted, definer)
}

// Examine is Plan, and looks whether the definer may still do what the triggers do: the error says what it may not, and the changes
// are there beside it.
func (c *Capturer) Examine(ctx context.Context) ([]Change, error) {
	wanted, definer, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := c.plan(ctx, wanted, definer)
	if err == nil {
		err = c.checkDefiner(ctx, wanted, definer)
	}
	return changes, err
}

// look returns what there should be, and for whom.
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

// hidden are the tables whose triggers this account may not see, of those that its rights tell.
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
