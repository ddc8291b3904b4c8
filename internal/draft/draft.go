package draft

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

// Options choose what a draft contains.
type Options struct {
	Tables []string // globs of tables, or of tables to leave out after a "!"; none: all
	App    string   // first part of the keys
	Keys   []string // names of keys in use, or nil
}

// A Draft is the draft of a map.
type Draft struct {
	Text     []byte        // the map
	Tables   []TableReport // ordered by name
	Families []Family      // of keys in use

	all      []*entity
	accepted map[*entity]string // captures that the database does not refuse
	present  []string           // all tables of the database
}

// A TableReport describes a table's place in a draft.
type TableReport struct {
	Table    string   `json:"table"`
	Entity   string   `json:"entity,omitempty"`
	Captured bool     `json:"captured"`
	Reason   string   `json:"reason,omitempty"` // why it is not captured, or not completely
	Left     []string `json:"left,omitempty"`   // columns whose changes do not count
}

// A way is how a table is captured. A table whose capture is refused tries the next one.
type way int

const (
	ownRow     way = iota // one row, with the parents as parameters
	eachParent            // one row for each parent, and no entity of its own
	noCascades            // as ownRow, without what foreign keys change
	noCapture
)

// A link makes the keys of a parent stale by a change of a table's row.
type link struct {
	capture.Reference
	columns []capture.Column
	parent  *entity
	guessed bool
	second  bool   // another link leads to the same parent
	param   string // "" if the parent's ID is the row's own
}

// id returns the source of the parent's ID.
func (l *link) id() invalidation.Source { return capture.IDSource(l.columns) }

// An entity is a table of the draft.
type entity struct {
	capture.Description
	name     string
	links    []*link
	children []*entity // with a link to this one
	notes    []string  // comments for a person
	left     []string  // columns that are noise
	way      way
	refused  []string // reasons, of ways that were tried
	ignored  []invalidation.IgnoredCascade
	dropped  bool     // it has no place in the map
	keys     []Family // of its keys in use
	known    bool     // families of keys were given
}

// isDrafted reports whether the map has the entity.
func (e *entity) isDrafted() bool { return !e.dropped && e.way != eachParent && len(e.Key) > 0 }

// Read returns the draft for the tables of a database.
func Read(ctx context.Context, db *sql.DB, o Options) (*Draft, error) {
	tables, err := capture.Describe(ctx, db)
	if err != nil {
		return nil, err
	}
	chosen, err := o.choose(tables)
	if err != nil {
		return nil, err
	}
	d := &Draft{accepted: map[*entity]string{}}
	for _, t := range tables {
		if isPassing(t.Err) {
			return nil, t.Err
		}
		d.present = append(d.present, t.Name)
	}
	names, prefix := namer{}, commonPrefix(chosen)
	byTable := map[string]*entity{}
	for _, t := range chosen {
		e := &entity{Description: t, known: o.Keys != nil}
		switch {
		case t.Err != nil:
			e.refuse(noCapture, t.Err.Error())
			e.dropped = true
		case noiseTables.MatchString(t.Name) && !slices.Contains(o.Tables, t.Name):
			e.refuse(noCapture, "left out, since it has the name of a log, a queue or a copy; name it in --tables to have it")
			e.dropped = true
		default:
			e.name = names.entityName(t.Name, prefix)
			e.readColumns()
			byTable[t.Name] = e
		}
		d.all = append(d.all, e)
	}
	// Foreign keys first: they are certain, and a guess may not close a cycle.
	for _, guess := range []bool{false, true} {
		for _, e := range d.all {
			if !e.dropped {
				e.findLinks(byTable, guess)
			}
		}
	}
	if err := d.settle(ctx, db); err != nil {
		return nil, err
	}
	d.readFamilies(o)
	return d, d.write(ctx, db, o, prefix)
}

// choose returns the tables that the patterns name.
func (o Options) choose(tables []capture.Description) (chosen []capture.Description, err error) {
	used := make([]bool, len(o.Tables))
	wanted := slices.ContainsFunc(o.Tables, func(p string) bool { return !strings.HasPrefix(p, "!") })
	for _, t := range tables {
		in := !wanted
		for i, pattern := range o.Tables {
			glob, out := strings.CutPrefix(pattern, "!")
			matched, err := glob == t.Name, error(nil)
			if !matched {
				matched, err = path.Match(glob, t.Name)
			}
			if matched {
				used[i], in = true, !out
			}
			if err != nil && !slices.ContainsFunc(tables, func(t capture.Description) bool { return t.Name == glob }) {
				return nil, fmt.Errorf("--tables %q: not a pattern; use names, * and ?", pattern)
			}
		}
		if in {
			chosen = append(chosen, t)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("--tables %q: the database has no such table, or the account may not see it", o.Tables[i])
	}
	if len(chosen) == 0 {
		return nil, errors.New("the database has no table, or the account may not see any; GRANT SELECT, TRIGGER on them")
	}
	return chosen, nil
}

// refuse makes the entity go a later way, for a reason.
func (e *entity) refuse(next way, reason string) {
	if !slices.Contains(e.refused, reason) {
		e.refused = append(e.refused, reason)
	}
	e.way = next
}

// readColumns finds noise, and what the key means for the capture.
func (e *entity) readColumns() {
	for _, c := range e.Columns {
		if isNoise(c) && !slices.ContainsFunc(e.Key, func(k capture.Column) bool { return k.Name == c.Name }) {
			e.left = append(e.left, c.Name)
		}
	}
	switch {
	case len(e.Key) == 0:
		e.refuse(eachParent, "it has neither a primary key nor a unique key without NULL, so its rows have no ID")
	case slices.ContainsFunc(e.Key, func(c capture.Column) bool { return c.Type == "varbinary" }):
		e.notes = append(e.notes, "Bytes of the ID are in hexadecimal. If they are text, write CONVERT({row}.column USING utf8mb4) in the capture.")
	case e.KeyName != "PRIMARY":
		e.notes = append(e.notes, fmt.Sprintf("Without a primary key; its ID is the unique key %s.", scalar(e.KeyName)))
	}
	if len(e.Key) > 0 && strings.HasPrefix(string(capture.IDSource(e.Key)), "LEFT(") {
		e.notes = append(e.notes, "Values that are too long for an ID are cut: IDs that differ only after 255 characters share keys.")
	}
}

// findLinks adds links by foreign keys, or by names of columns.
func (e *entity) findLinks(byTable map[string]*entity, guess bool) {
	var found []*link
	for _, r := range e.Parents {
		if parent := byTable[r.Parent]; parent != nil && !guess {
			found = append(found, &link{Reference: r, columns: e.named(r.Columns), parent: parent})
		}
	}
	for _, c := range e.Columns {
		isForeign := slices.ContainsFunc(e.Parents, func(r capture.Reference) bool { return slices.Contains(r.Columns, c.Name) })
		if parent := e.guess(byTable, c); guess && !isForeign && parent != nil {
			r := capture.Reference{Parent: parent.Name, Columns: []string{c.Name}, References: []string{parent.Key[0].Name}}
			found = append(found, &link{Reference: r, columns: []capture.Column{c}, parent: parent, guessed: true})
		}
	}
	// product_translation is a part of product, and not of language, which is in its key, too.
	isNamed := slices.ContainsFunc(found, func(l *link) bool { return e.isNamedAfter(l.parent) })
	for _, l := range found {
		l.addTo(e, e.isNamedAfter(l.parent) || !isNamed && (l.Cascades || e.isKey(l.columns) || len(e.Key) == 0))
	}
}

// isNamedAfter reports whether the entity's name contains that of a parent.
func (e *entity) isNamedAfter(parent *entity) bool {
	return e != parent && (strings.HasPrefix(e.name, parent.name) || strings.Contains("_"+e.name+"_", "_"+parent.name+"_"))
}

// guess returns the entity that a column without a foreign key refers to by its name, or nil.
func (e *entity) guess(byTable map[string]*entity, c capture.Column) *entity {
	for _, name := range guesses(c.Name) {
		if name == e.name {
			return nil // the row's own ID
		}
		var found []*entity
		for _, other := range byTable {
			if other.name == name || strings.HasSuffix(other.name, "_"+name) {
				found = append(found, other)
			}
		}
		if i := slices.IndexFunc(found, func(other *entity) bool { return other.name == name }); i >= 0 {
			found = found[i : i+1]
		}
		if len(found) == 1 && found[0] != e && len(found[0].Key) == 1 && found[0].Key[0].Type == c.Type {
			return found[0]
		}
	}
	return nil
}

// guesses returns the names of entities that a column with a name may refer to: product_id,
// id_product and comment_post_id, or none.
func guesses(column string) (names []string) {
	name := words(column)
	if short := strings.TrimPrefix(strings.TrimSuffix(name, "_id"), "id_"); short != name {
		names = []string{short}
		name = short
	}
	if _, rest, ok := strings.Cut(name, "_"); ok {
		names = append(names, rest)
	}
	return names
}

func (e *entity) named(names []string) (columns []capture.Column) {
	for _, name := range names {
		for _, c := range e.Columns {
			if strings.EqualFold(c.Name, name) {
				columns = append(columns, c)
			}
		}
	}
	return columns
}

// isKey reports whether the key contains all columns.
func (e *entity) isKey(columns []capture.Column) bool { return within(columns, e.Key) }

// within reports whether all columns are among others.
func within(columns, others []capture.Column) bool {
	return !slices.ContainsFunc(columns, func(c capture.Column) bool {
		return !slices.ContainsFunc(others, func(other capture.Column) bool { return other.Name == c.Name })
	})
}

// refersToKey reports whether a link gives the parent's ID.
func (l *link) refersToKey() bool {
	if len(l.columns) != len(l.References) || len(l.References) != len(l.parent.Key) {
		return false
	}
	for i, k := range l.parent.Key {
		if !strings.EqualFold(k.Name, l.References[i]) {
			return false
		}
	}
	return true
}

// longest is how many links may follow each other, since each needs the lookup before it.
const longest = 8

// addTo adds the link to an entity if its row is a part of the parent, and a note if not.
func (l *link) addTo(e *entity, isPart bool) {
	note := func(text string) {
		e.notes = append(e.notes, fmt.Sprintf(text, strings.Join(scalars(l.Columns), ", "), l.parent.name))
	}
	switch {
	case !isPart && l.guessed:
		note("%s may refer to %[2]s: add it to as if keys of %[2]s show this row.")
	case l.parent == e:
		note("A tree: %s refers to %s. To reach the rows above, see \"Category trees\" in docs/map-cookbook.md.")
	case !l.refersToKey():
		note("%s refers to %s by another key than its ID, so it is left to you.")
	case !isPart:
		note("%s refers to %[2]s: add it to as if keys of %[2]s show this row.")
	case !l.parent.canLookUp() && len(l.parent.links) > 0, !e.canLookUp() && len(e.children) > 0:
		note("%s refers to %s, and lookups cannot follow its key, so it is left to you.")
	case l.parent.reaches(e):
		note("Not expanded as its parent by %s, since %s already expands as this entity.")
	case l.parent.above()+e.below()+1 > longest:
		note("Not expanded as its parent by %s: too many lookups would follow each other up to %s.")
	default:
		if l.guessed {
			note("Guessed by the name of %s: a row is a part of %s.")
		}
		if slices.ContainsFunc(l.columns, func(c capture.Column) bool { return slices.Contains(textTypes, c.Type) }) {
			note("%s is text, and can be spelled in another way than in %[2]s, for example in upper case: keys of %[2]s get the spelling of this table.")
		}
		l.second = slices.ContainsFunc(e.links, func(other *link) bool { return other.parent == l.parent })
		l.parent.children = append(l.parent.children, e)
		e.links = append(e.links, l)
	}
}

// reaches reports whether the entity expands as another one.
func (e *entity) reaches(other *entity) bool {
	return e == other || slices.ContainsFunc(e.links, func(l *link) bool { return l.parent.reaches(other) })
}

// below returns how many links follow each other up to here.
func (e *entity) below() (n int) {
	for _, child := range e.children {
		n = max(n, 1+child.below())
	}
	return n
}

// above returns how many links follow each other from here.
func (e *entity) above() (n int) {
	for _, l := range e.links {
		n = max(n, 1+l.parent.above())
	}
	return n
}
