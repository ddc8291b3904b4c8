package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
)

// cascaded are triggers on the parents of captured tables. A delete or update by a foreign key
// fires no trigger of the child, so the parent's trigger inserts the rows in advance.
type cascaded struct {
	keys    []foreignKey
	mariaDB bool
	share   string                          // suffix of a SELECT of children
	order   []string                        // of the triggers
	parents map[string]invalidation.Capture // tables with triggers, and a capture that needs them
	bodies  map[string][]string             // by parent and event
	emptied map[emptying][]string
	reads   []string     // tables that the triggers select from
	locks   []foreignKey // whose children the triggers lock for an update
	// trees are the triggers that read a tree in their own table, and whether it is a cycle of tables.
	trees  map[string]bool
	cycles map[cycleOf][]foreignKey
}

// newCascaded depends on the server. At READ COMMITTED, the SELECT of a trigger would see the data
// from the start of the statement, and miss later changes of a child. MySQL always reads like this,
// MariaDB in an UPDATE, INSERT ... SELECT or REPLACE ... SELECT (ha_innobase::store_lock). The suffix
// makes it see the latest data, and wait for sessions that change it, on each level of a tree.
func newCascaded(keys []foreignKey, mariaDB bool) *cascaded {
	c := &cascaded{keys: keys, mariaDB: mariaDB, share: " FOR SHARE", parents: map[string]invalidation.Capture{}, bodies: map[string][]string{},
		emptied: map[emptying][]string{}, trees: map[string]bool{}, cycles: map[cycleOf][]foreignKey{}}
	if mariaDB {
		c.share = " LOCK IN SHARE MODE"
	}
	return c
}

// cover adds the effects of foreign keys to a writer.
func (c *cascaded) cover(w *writer) error {
	if err := c.known(w); err != nil {
		return err
	}
	for _, key := range c.keys {
		if key.child != w.table.Name || w.IgnoreCascades || w.ignores(key, onDelete) && w.ignores(key, onUpdate) {
			continue
		}
		if err := key.hidden(); err != nil {
			return err
		}
		matters := w.Update && w.uses(key.columns)
		if (key.onDelete == "CASCADE" && w.Delete || key.empties() && matters) && !w.ignores(key, onDelete) {
			switch {
			case key.empties() && w.generates(key.columns):
				return w.uncovered(key, key, onDelete, errGenerated)
			case key.empties() && asks(w, key.columns):
				return w.uncovered(key, key, onDelete, errAsked)
			}
			if err := c.coverDelete(w, []foreignKey{key}); err != nil {
				return err
			}
		}
		if sets(key.onUpdate) && matters && !w.ignores(key, onUpdate) {
			if err := c.coverUpdate(w, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// The events of a parent, as a map ignores them.
const (
	onDelete = "delete"
	onUpdate = "update"
)

// ignores reports whether the map leaves out what a key does on an event of its parent.
func (w *writer) ignores(key foreignKey, event string) bool {
	return slices.ContainsFunc(w.Ignored, func(one invalidation.IgnoredCascade) bool {
		return strings.EqualFold(one.Key, key.nameIn(w.table.Name)) && (event == onDelete && one.Delete || event == onUpdate && one.Update)
	})
}

// known returns an error if the map ignores a key that does not exist.
func (c *cascaded) known(w *writer) error {
	var names []string
	for _, key := range c.keys {
		names = append(names, key.nameIn(w.table.Name))
	}
	for _, one := range w.Ignored {
		if indexFold(names, one.Key) < 0 {
			return fmt.Errorf("cascades: no foreign key has the name %s; %s", one.Key, near.DidYouMean(one.Key, names, "name a constraint of the table, or of another one as table.constraint"))
		}
	}
	return nil
}

// An UncoveredError reports a foreign key whose changes triggers cannot cover.
type UncoveredError struct {
	Ignored invalidation.IgnoredCascade // what the map needs
	Why     error
	key     foreignKey
	because foreignKey
}

// uncovered reports that triggers cannot cover what a key of the table does, because of an event of
// the parent of a key, which may be the same.
func (w *writer) uncovered(key, because foreignKey, event string, err error) error {
	return &UncoveredError{invalidation.IgnoredCascade{Key: because.nameIn(w.table.Name), Delete: event == onDelete, Update: event == onUpdate}, err, key, because}
}

// Error implements error.
func (e *UncoveredError) Error() string {
	return fmt.Sprintf("%s changes it without firing a trigger, and that cannot be covered: %v; write rows for that yourself and add 'cascades: {%s: %s}' to the capture, or change the key",
		e.key, e.Why, e.Ignored.Key, e.Ignored.Way())
}

// Unwrap returns the reason.
func (e *UncoveredError) Unwrap() error { return e.Why }

// Reason describes the key that the map leaves out, and why. It is the same for all tables that the
// key's changes reach.
func (e *UncoveredError) Reason() string {
	if why := e.Why.Error(); strings.HasPrefix(why, e.because.String()) {
		return why
	}
	return fmt.Sprintf("%s: %v", e.because, e.Why)
}

var (
	errElsewhere = errors.New("its parent is in another database")
	errGenerated = errors.New("a generated column uses its columns")
	errAsked     = errors.New("an expression with a subquery uses its columns")
)

// coverDelete adds triggers for the deletion of a parent at the end of a path of keys, which begins
// at the captured table, of the tables in a cycle with it, and of their own parents.
func (c *cascaded) coverDelete(w *writer, path []foreignKey) error {
	last := path[len(path)-1]
	if last.elsewhere {
		return w.uncovered(path[0], last, onDelete, errElsewhere)
	}
	roots := c.ring(w, last.parent)
	for _, root := range roots {
		if err := c.coverRoot(w, path, root); err != nil {
			return err
		}
	}
	for _, next := range c.keys {
		if !slices.Contains(roots, next.child) || w.ignores(next, onDelete) {
			continue
		}
		if err := next.hidden(); err != nil {
			return err
		}
		if next.onDelete != "CASCADE" || !next.elsewhere && slices.Contains(roots, next.parent) {
			continue
		}
		if err := c.coverDelete(w, append(slices.Clone(path), next)); err != nil {
			return err
		}
	}
	return nil
}

// coverRoot adds a trigger for the deletion of a row of a table in the cycle at the end of a path.
func (c *cascaded) coverRoot(w *writer, path []foreignKey, root string) error {
	d := deletion{c, w, root}
	var tables []string
	for _, key := range path {
		tables = append(tables, key.child)
		if len(c.cycle(w, key.parent)) > 0 {
			tables = append(tables, c.ring(w, key.parent)...)
		}
	}
	locks, deepest, several := "", len(path)-1, len(c.ring(w, root)) > 1
	if several {
		deepest = len(path)
	}
	if trigger := root + "\x00DELETE"; len(c.cycle(w, root)) > 0 {
		c.trees[trigger] = c.trees[trigger] || several
	}
	for level := deepest; level > 0; level-- {
		locks += d.lockLevel(path, level)
	}
	with, from, where := d.level(path, insertAliases, "\n      ", c.share)
	from += "\n      WHERE " + where
	insert := c.insertSelect(w, "    ", w.id.of(child), withClause(with), from, nil)
	if path[0].empties() && w.computes(path[0].columns) {
		values, err := d.emptiedValues(path)
		if err != nil {
			return w.uncovered(path[0], path[len(path)-1], onDelete, err)
		}
		insert = c.insertComputed(w, "    ", withClause(with), from, values)
	}
	c.extendTrigger(root, "DELETE", w.guarded(locks+insert), tables...)
	return nil
}

// coverUpdate adds a trigger for another key of a parent.
func (c *cascaded) coverUpdate(w *writer, key foreignKey) error {
	switch {
	case key.elsewhere:
		return w.uncovered(key, key, onUpdate, errElsewhere)
	case w.generates(key.columns):
		return w.uncovered(key, key, onUpdate, errGenerated)
	case asks(w, key.columns):
		return w.uncovered(key, key, onUpdate, errAsked)
	}
	for _, k := range c.keys {
		if k.child != key.parent || !k.touches(key.references) {
			continue
		}
		err := fmt.Errorf("%s changes that of the parent in turn", k)
		switch {
		case sets(k.onUpdate) && !w.ignores(k, onUpdate):
			return w.uncovered(key, k, onUpdate, err)
		case k.empties() && !w.ignores(k, onDelete):
			return w.uncovered(key, k, onDelete, err)
		}
	}
	from := "FROM " + quote(key.child) + " AS " + child + "\n      WHERE " + key.join(child, oldRow)
	begin := "    IF NOT (" + key.stays() + ") THEN\n"
	others := c.beside(w, key, func(k foreignKey) bool { return sets(k.onUpdate) })
	both := key.onUpdate == "CASCADE" && slices.ContainsFunc(others, func(k foreignKey) bool { return k.onUpdate == "CASCADE" })
	if both || w.computes(key.columns) {
		fires := func(k foreignKey) string { return " AND NOT (" + k.stays() + ")" }
		values := newValues(key, others, fires, func(k foreignKey, i int) string {
			if k.onUpdate == "CASCADE" {
				return newRow + "." + quote(k.references[i])
			}
			return nullOf(k.columns[i])
		})
		c.extendTrigger(key.parent, "UPDATE", w.guarded(begin+c.insertComputed(w, "      ", "", from, values)+"    END IF;\n"), key.child)
		return nil
	}
	becomes := func(column Column) (string, bool) { // of the child
		i := indexFold(key.columns, column.Name)
		if i < 0 {
			return "", false
		}
		if key.onUpdate != "CASCADE" {
			return "NULL", true
		}
		column.Name = key.references[i]
		text, err := column.textSQL(newRow)
		return text, err == nil
	}
	body := begin + c.insertSelect(w, "      ", w.id.of(child), "", from, becomes)
	if column, err := w.table.column(w.id.column); err == nil {
		if id, moved := becomes(column); moved && id != "NULL" {
			body += c.insertSelect(w, "      ", id, "", from, becomes)
		}
	}
	c.extendTrigger(key.parent, "UPDATE", w.guarded(body+"    END IF;\n"), key.child)
	return nil
}

// stays returns the condition that an update of the parent does not change what the key refers to.
func (f foreignKey) stays() string {
	var same []string
	for _, reference := range f.references {
		same = append(same, fmt.Sprintf("CAST(OLD.%[1]s AS BINARY) <=> CAST(NEW.%[1]s AS BINARY)", quote(reference)))
	}
	return strings.Join(same, " AND ")
}

// extendTrigger adds statements to the trigger of a parent.
func (c *cascaded) extendTrigger(parent, event, body string, reads ...string) {
	name := parent + "\x00" + event
	if _, known := c.bodies[name]; !known {
		c.order = append(c.order, name)
	}
	if !slices.Contains(c.bodies[name], body) {
		c.bodies[name] = append(c.bodies[name], body)
	}
	for _, table := range reads {
		if !slices.Contains(c.reads, table) {
			c.reads = append(c.reads, table)
		}
	}
}

func (c *cascaded) triggers() (all []Trigger) {
	for _, name := range c.order {
		parent, event, _ := strings.Cut(name, "\x00")
		t := newTrigger(parent, "BEFORE", event, c.bodies[name])
		t.Cycle, t.Tree = c.trees[name]
		all = append(all, t)
	}
	return all
}

// uses reports whether a change of one of the columns counts for the capture.
func (w *writer) uses(columns []string) bool {
	if len(w.Watch) == 0 || w.computes(columns) || w.generates(columns) || slices.ContainsFunc(w.Watch, w.isVirtual) {
		return true
	}
	used := append(slices.Clone(w.Watch), w.id.column)
	for _, p := range w.params {
		used = append(used, p.column)
	}
	return slices.ContainsFunc(columns, func(c string) bool { return indexFold(used, c) >= 0 })
}

// paramsOf returns the params of a child's row, with its new values.
func (w *writer) paramsOf(becomes func(Column) (string, bool)) string {
	return w.paramsObject(func(p param) []string {
		values := []string{p.of(child)}
		if becomes == nil || p.column == "" {
			return values
		}
		column, err := w.table.column(p.column)
		if err != nil {
			return values
		}
		if text, changes := becomes(column); changes {
			values = append(values, text)
		}
		return values
	})
}

// insertSelect inserts outbox rows, with an ID, for the rows that from selects, after a WITH clause
// or "". becomes, if set, returns the new value of a column.
func (c *cascaded) insertSelect(w *writer, indent, id, with, from string, becomes func(Column) (string, bool)) string {
	return w.insertion(indent, func(indent string, to destination) string {
		return indent + c.unlimited("INSERT", " INTO "+to.into()) + "\n" +
			indent + "  " + with + "SELECT " + to.values(w.Entity, id, w.paramsOf(becomes)) + "\n" +
			indent + "  " + from + " AND " + id + " IS NOT NULL" + c.share + ";\n"
	})
}
