package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/schema"
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
	copies   []tableCopy
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
		if err := c.checkNames(wanted.Triggers, cascades.parents); err != nil {
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
func (c *Capturer) checkNames(all []Trigger, parents map[string]invalidation.Capture) error {
	for _, t := range all {
		name := t.unstorable()
		if name == "" {
			continue
		}
		of := parents[t.Table]
		if i := slices.IndexFunc(c.Captures, func(one invalidation.Capture) bool { return strings.EqualFold(one.Table, t.Table) }); i >= 0 {
			of = c.Captures[i]
		}
		return Fault{of, fmt.Errorf("MySQL cannot store a trigger on %s that names %s (3507), because of its backtick and its letters; rename it, or leave it out of the capture", t.Table, name)}
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
		if _, ok := cascades.parents[parent]; !ok {
			cascades.parents[parent] = w.Capture
		}
	}
	return nil
}

func isMariaDB(ctx context.Context, db *sql.DB) (bool, error) {
	version, err := askServer[string](ctx, db, "the version", "SELECT VERSION()")
	return strings.Contains(version, "MariaDB"), err
}

// Plan compares the database's triggers with the captures.
func (c *Capturer) Plan(ctx context.Context) ([]Change, error) {
	changes, _, _, err := c.plan(ctx)
	return changes, err
}

// Examine is like Plan, and also checks that the definer still has the privileges of the triggers,
// and will have them after a schema change that copies a table. The error lists the privileges that
// it lacks; the changes are returned in any case.
func (c *Capturer) Examine(ctx context.Context) ([]Change, error) {
	changes, wanted, definer, err := c.plan(ctx)
	if err == nil {
		err = c.requireDefiner(ctx, wanted, definer)
	}
	if err == nil {
		err = checkAhead(ctx, c, wanted, changes)
	}
	return changes, err
}

// wantedTriggers returns the wanted triggers, and the definer.
func (c *Capturer) wantedTriggers(ctx context.Context) (wanted *Wanted, definer Account, err error) {
	if wanted, err = c.Wanted(ctx); err != nil {
		return nil, Account{}, err
	}
	var captured []string
	for _, t := range wanted.Triggers {
		if !slices.Contains(captured, t.Table) {
			captured = append(captured, t.Table)
		}
	}
	if wanted.copies, _, err = readCopies(ctx, c.DB, captured); err != nil {
		return nil, Account{}, err
	}
	if definer = c.Definer; definer == (Account{}) {
		definer, err = currentAccount(ctx, c.DB)
	}
	return wanted, definer, err
}

// plan also returns what it compares with the database's triggers.
func (c *Capturer) plan(ctx context.Context) (changes []Change, wanted *Wanted, definer Account, err error) {
	if wanted, definer, err = c.wantedTriggers(ctx); err != nil {
		return nil, nil, Account{}, err
	}
	existing, err := ReadExisting(ctx, c.DB)
	if err != nil {
		return nil, nil, Account{}, err
	}
	hidden, err := c.hidden(ctx, wanted)
	if err == nil {
		err = readOriginals(ctx, c.DB, existing, wanted.Triggers)
	}
	if err != nil {
		return nil, nil, Account{}, err
	}
	return compare(wanted.Triggers, existing, wanted.copies, definer, hidden), wanted, definer, nil
}

// hidden returns the tables whose triggers this account cannot see, by its grants.
func (c *Capturer) hidden(ctx context.Context, wanted *Wanted) (map[string]bool, error) {
	g, err := sessionGrants(ctx, c.DB, wanted.mariaDB)
	if err != nil || g == nil {
		return nil, err
	}
	database, err := askServer[string](ctx, c.DB, "the database", databaseSQL)
	if err != nil {
		return nil, err
	}
	hidden := map[string]bool{}
	for _, t := range wanted.Triggers {
		hidden[t.Table] = !g.On("TRIGGER", database, t.Table)
	}
	return hidden, nil
}

const databaseSQL = "SELECT DATABASE()"

// A State is the state of a trigger relative to the map.
type State string

// The states of triggers.
const (
	InPlace      State = "in place"
	Missing      State = "missing"
	Changed      State = "changed"       // the map, or the table, has changed since it was made
	Outdated     State = "outdated"      // an older version made it, with a defect
	WrongDefiner State = "wrong definer" // made for another account
	CutsValues   State = "cuts values"   // created in a mode that truncates values
	RenamedAway  State = "renamed away"  // its table has another name now
	NotInMap     State = "not in the map"
	Duplicate    State = "duplicate"       // another trigger on the same table does the same
	Unknown      State = "unknown"         // the account cannot see it
	OnCopy       State = "on a copy"       // of a table, which may take its place: stays
	Moved        State = "moved to a copy" // missing, and on the copy of a running schema change
)

// A Change is a trigger with its state, and the action that it needs.
type Change struct {
	State  State
	Want   *Trigger  // nil: none
	Create string    // the name of the trigger to create, or ""
	Have   *Existing // nil: none. Dropped, if it differs
	Of     string    // the captured table whose copy, or old table, has the trigger; or ""
}

// Differs reports whether Apply changes something.
func (c Change) Differs() bool { return c.State != InPlace && c.State != OnCopy }

// trigger returns the existing trigger, or else the wanted one.
func (c Change) trigger() *Trigger {
	if c.Have != nil {
		return &c.Have.Trigger
	}
	return c.Want
}

// Table returns the table of the trigger.
func (c Change) Table() string { return c.trigger().Table }

// Event returns the event of the trigger, for example AFTER UPDATE.
func (c Change) Event() string { return c.trigger().Timing + " " + c.trigger().Event }

// compare returns the changes that leave exactly the wanted triggers, in the order of wanted.
// hidden are the tables whose triggers cannot be seen.
func compare(wanted []Trigger, existing []Existing, copies []tableCopy, definer Account, hidden map[string]bool) (all []Change) {
	left := slices.Clone(existing)
	take := func(fits func(Existing) bool) *Existing {
		i := slices.IndexFunc(left, fits)
		if i < 0 {
			return nil
		}
		e := left[i]
		left = slices.Delete(left, i, i+1)
		return &e
	}
	all = make([]Change, len(wanted))
	// first the existing ones: none of them must count as changed
	for i := range wanted {
		w := &wanted[i]
		all[i] = Change{State: Missing, Want: w, Have: take(func(e Existing) bool {
			return w.is(e) && definer.is(e.Definer) && e.isStrict()
		})}
		if all[i].Have != nil {
			all[i].State = InPlace
		}
	}
	for i := range all {
		c := &all[i]
		if c.State == InPlace {
			continue
		}
		c.Have = take(func(e Existing) bool { return c.Want.sameEvent(e) })
		switch {
		case c.Have == nil && hidden[c.Want.Table]:
			c.State = Unknown
			continue
		case c.Have == nil:
			if slices.ContainsFunc(copies, func(one tableCopy) bool { return one.took(*c.Want, left) }) {
				c.State = Moved
			}
		case !c.Want.is(*c.Have) && c.Want.older().Body == c.Have.older().Body:
			c.State = Outdated
		case !c.Want.is(*c.Have):
			c.State = Changed
		case !c.Have.isStrict():
			c.State = CutsValues
		default:
			c.State = WrongDefiner
		}
		c.Create = freeName(*c.Want, existing, all)
	}
	names := byName(wanted)
	lacks := func(table string) bool {
		return slices.ContainsFunc(all, func(c Change) bool { return c.State == Missing && c.Want.Table == table })
	}
	for _, e := range left {
		change := Change{State: NotInMap, Have: &e}
		if i := slices.IndexFunc(copies, func(one tableCopy) bool { return one.name == e.Table && (one.tool != "" || !lacks(one.of)) }); i >= 0 {
			change.State, change.Of = OnCopy, copies[i].of
		} else if slices.ContainsFunc(wanted, func(w Trigger) bool { return w.sameEvent(e) }) {
			change.State = Duplicate
		} else if of := e.renamedFrom(wanted, names); of != "" {
			change.State, change.Of = RenamedAway, of
		}
		all = append(all, change)
	}
	return all
}

// renamedFrom returns the wanted table that the table of e was when e was created, "" for none. names
// are the wanted triggers by their first name.
func (e Existing) renamedFrom(wanted []Trigger, names map[string][]*Trigger) string {
	for _, w := range names[e.firstName()] {
		if w.Table != e.Table {
			return w.Table
		}
	}
	if e.madeFor(e.Table) {
		return ""
	}
	for _, w := range wanted {
		if w.Table != e.Table && e.madeFor(w.Table) {
			return w.Table
		}
	}
	return ""
}

// is reports whether e is the same trigger.
func (t *Trigger) is(e Existing) bool { return t.sameEvent(e) && e.Body == t.Body }

func (t *Trigger) sameEvent(e Existing) bool {
	return e.Table == t.Table && e.Timing == t.Timing && e.Event == t.Event
}

// freeName returns a name that no trigger has, including the triggers that will be dropped: the new
// one is created first.
func freeName(t Trigger, existing []Existing, planned []Change) string {
	for n := 1; ; n++ {
		name := t.Name(n)
		if !slices.ContainsFunc(existing, func(e Existing) bool { return e.Name == name }) &&
			!slices.ContainsFunc(planned, func(c Change) bool { return c.Create == name }) {
			return name
		}
	}
}

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
func ReadExisting(ctx context.Context, db *sql.DB) (all []Existing, err error) {
	type row struct {
		Existing
		seconds float64
	}
	rows, err := queryAll(ctx, db, "the triggers", func(e *row) []any {
		return []any{&e.Name, &e.Table, &e.Timing, &e.Event, &e.Body, &e.Definer, &e.Mode, &e.seconds}
	}, existingSQL)
	for _, e := range rows {
		e.Created = time.UnixMilli(int64(e.seconds * 1000)).UTC()
		all = append(all, e.Existing)
	}
	return all, err
}

// Contract: no lock; the dictionary.
const originalSQL = "SHOW CREATE TRIGGER "

// readOriginals corrects the bodies of triggers that have the name of a wanted one, or had it in
// earlier versions. The list of the dictionary shows literals with resolved escapes and character
// sets, and without characters that the server's character set lacks.
func readOriginals(ctx context.Context, db *sql.DB, existing []Existing, wanted []Trigger) error {
	names := byName(wanted)
	for i := range existing {
		for _, t := range names[existing[i].firstName()] {
			if err := readOriginal(ctx, db, &existing[i], t); err != nil {
				return err
			}
		}
	}
	return nil
}

// byName returns the triggers, and those of earlier versions, by their first name.
func byName(all []Trigger) map[string][]*Trigger {
	names := map[string][]*Trigger{}
	for i := range all {
		for _, t := range []*Trigger{&all[i], all[i].older()} {
			names[t.Name(1)] = append(names[t.Name(1)], t)
		}
	}
	return names
}

// firstName returns the name without what follows its hash: a twin's number, or a tool's suffix.
func (e Existing) firstName() string {
	return e.Name[:min(len(e.Name), len(Prefix+e.Event+"_")+hashLength)]
}

func readOriginal(ctx context.Context, db *sql.DB, e *Existing, t *Trigger) error {
	if e.Body == t.Body {
		return nil
	}
	texts, err := queryAll(ctx, db, "the trigger "+e.Name, func(text *string) []any {
		rest := new(any)
		return []any{rest, rest, text, rest, rest, rest, rest}
	}, originalSQL+quote(e.Name))
	if err == nil && len(texts) == 1 && strings.HasSuffix(texts[0], t.Body) {
		e.Body = t.Body
	}
	return err
}

// isStrict reports whether the trigger was created in a mode that does not truncate values.
func (e Existing) isStrict() bool { return strings.Contains(e.Mode, "STRICT_ALL_TABLES") }
