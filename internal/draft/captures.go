package draft

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/invalidation"
)

// canLookUp reports whether a lookup can find rows by the entity's ID.
func (e *entity) canLookUp() bool {
	if len(e.Key) != 1 {
		return false
	}
	return !capture.IDSource(e.Key).IsExpression() || e.isHex()
}

// isHex reports whether the ID is bytes in hexadecimal.
func (e *entity) isHex() bool {
	return len(e.Key) == 1 && strings.HasPrefix(string(capture.IDSource(e.Key)), "LOWER(HEX(")
}

// lookup returns the SQL that finds the parent's ID by the ID of a row of e.
func (l *link) lookup(e *entity) string {
	const row = "t"
	key, value := e.Key[0], l.id().Of(row)
	if !l.id().IsExpression() {
		value = l.columns[0].Text(row)
	}
	id, mark := key.Text(row), "?"
	if e.isHex() {
		id, mark = capture.IDSource(e.Key).Of(row), "UNHEX(?)"
	}
	return fmt.Sprintf("SELECT %s, %s FROM %s AS %s WHERE %s.%s IN (%s)", id, value, capture.QuoteName(e.Name), row, row, capture.QuoteName(key.Name), mark)
}

// parents returns the links to entities of the map.
func (e *entity) parents() (all []*link) {
	for _, l := range e.links {
		if l.parent.isDrafted() {
			all = append(all, l)
		}
	}
	return all
}

// expands returns the links that the entity expands by, as its parents.
func (e *entity) expands() (all []*link) {
	for _, l := range e.parents() {
		if !l.second && (e.way != noCapture || l.param == "" || e.canLookUp()) {
			all = append(all, l)
		}
	}
	return all
}

// nameParams names the parameters. A parent expands with the row's parameters, so no name is one of
// the entities above.
func (d *Draft) nameParams() {
	done := map[*entity]namer{}
	var visit func(e *entity) namer
	visit = func(e *entity) namer {
		if taken := done[e]; taken != nil {
			return taken
		}
		taken := namer{"id": true, "app": true}
		done[e] = taken
		for _, l := range e.links {
			for name := range visit(l.parent) {
				taken[name] = true
			}
		}
		for _, l := range e.links {
			if l.param = ""; l.second || len(e.Key) == 1 && l.Columns[0] == e.Key[0].Name && len(l.Columns) == 1 {
				continue
			}
			name := words(strings.Join(l.Columns, "_"))
			if name == "" || name[0] >= '0' && name[0] <= '9' {
				name = "column_" + name
			}
			l.param = taken.free(name, strings.NewReplacer("-", "_", ".", "_").Replace(e.name)+"_"+name)
		}
		return taken
	}
	for _, e := range d.all {
		visit(e)
	}
}

// watch returns the columns whose changes count for a row about the entity itself or a parent, or
// nil for all. The entity's own ID needs no watch.
func (e *entity) watch(own bool) (names []string) {
	if len(e.left) == 0 {
		return nil
	}
	var all []string
	for _, c := range e.Columns {
		if slices.Contains(e.left, c.Name) {
			continue
		}
		all = append(all, c.Name)
		if !own || !e.isKey([]capture.Column{c}) {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return all
	}
	return names
}

// captures returns the captures of the table.
func (e *entity) captures() (all []invalidation.Capture) {
	if e.dropped || e.way == noCapture {
		return nil
	}
	add := func(about string, id invalidation.Source, params ...invalidation.CaptureParam) {
		all = append(all, invalidation.Capture{Table: e.Name, Entity: about, ID: id, Watch: e.watch(about == e.name), Params: params,
			Insert: true, Update: true, Delete: true, IgnoreCascades: e.way == noCascades, Ignored: e.ignored})
	}
	if e.way != eachParent {
		var params []invalidation.CaptureParam
		for _, l := range e.expands() {
			if l.param != "" {
				params = append(params, invalidation.CaptureParam{Name: l.param, Source: l.id()})
			}
		}
		add(e.name, capture.IDSource(e.Key), params...)
	}
	for _, l := range e.parents() {
		if l.second || e.way == eachParent {
			add(l.parent.name, l.id())
		}
	}
	return all
}

// tryNext changes a capture that the database refuses: it leaves out a foreign key that triggers
// cannot cover, or the table goes the next way.
func (e *entity) tryNext(err error) {
	if uncovered, ok := errors.AsType[*capture.UncoveredError](err); ok && e.ignore(uncovered.Ignored) {
		e.refuse(e.way, uncovered.Reason())
		return
	}
	var linked []capture.Column
	for _, l := range e.parents() {
		linked = append(linked, l.columns...)
	}
	isLinked := len(e.Key) > 0 && within(e.Key, linked)
	next := noCapture
	switch {
	case e.way < eachParent && isLinked:
		next = eachParent
	case e.way < noCascades && len(e.Key) > 0:
		next = noCascades
	}
	e.refuse(next, err.Error())
}

// ignore leaves out what a foreign key does on an event, and reports whether it was not left out.
func (e *entity) ignore(one invalidation.IgnoredCascade) bool {
	i := slices.IndexFunc(e.ignored, func(i invalidation.IgnoredCascade) bool { return i.Key == one.Key })
	if i < 0 {
		e.ignored = append(e.ignored, one)
		return true
	}
	before := e.ignored[i]
	both := invalidation.IgnoredCascade{Key: one.Key, Delete: before.Delete || one.Delete, Update: before.Update || one.Update}
	e.ignored = slices.Clone(e.ignored) // captures that were tried have the other list
	e.ignored[i] = both
	return both != before
}

// isPassing reports whether an error is not about a table, but about the connection or a busy
// server.
func isPassing(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || mysqlerr.IsPassing(err) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, context.Canceled)
}

// settle finds a way for each table that the database does not refuse. Each round tries what has
// changed. The last one tries all, since a check may need that no capture has a fault.
func (d *Draft) settle(ctx context.Context, db *sql.DB) error {
	for refused := false; ; {
		d.nameParams()
		tried := map[string]*entity{}
		var all, untried []invalidation.Capture
		for _, e := range d.all {
			if e.way == eachParent && len(e.parents()) == 0 {
				e.refuse(noCapture, "no foreign key leads to a table of the map")
			}
			captures := e.captures()
			all, tried[e.Name] = append(all, captures...), e
			if text := fmt.Sprint(captures); d.accepted[e] != text {
				d.accepted[e], untried = text, append(untried, captures...)
			}
		}
		switch {
		case len(untried) == 0 && !refused:
			return nil
		case len(untried) == 0:
			refused, untried = false, all
		}
		_, err := (&capture.Capturer{DB: db, Captures: untried}).Wanted(ctx)
		faults := capture.Faults(err)
		if err != nil && len(faults) == 0 {
			return err
		}
		for _, fault := range faults {
			if isPassing(fault.Err) {
				return fault.Err
			}
			if e := tried[fault.Table]; e != nil {
				delete(tried, fault.Table)
				e.tryNext(fault.Err)
				refused = true
			}
		}
	}
}

// compile parses the map, and leaves out what it refuses. It reports whether the map is good.
func (d *Draft) compile(text []byte, places []placed) (good bool, err error) {
	m, err := invalidation.Parse("mapping.yaml", text, nil)
	faults, isFaults := errors.AsType[invalidation.Faults](err)
	if err == nil {
		faults = append(m.Deprecations(), m.Uncovered()...)
	}
	if err != nil && !isFaults {
		return false, err
	}
	changed := false
	for _, fault := range faults {
		i := slices.IndexFunc(places, func(p placed) bool { return fault.Line >= p.first && fault.Line <= p.last })
		if i >= 0 {
			reason := fault.Problem
			if fault.Text != "" {
				reason = fmt.Sprintf("%q: %s", fault.Text, reason)
			}
			changed = places[i].of.giveUp(places[i].isCapture, reason) || changed
			d.forgetKeys(places[i].of)
		}
	}
	if len(faults) > 0 && !changed {
		return false, faults
	}
	return len(faults) == 0, nil
}

// forgetKeys makes families unexplained whose keys an entity has not.
func (d *Draft) forgetKeys(e *entity) {
	for i := range d.Families {
		if f := &d.Families[i]; f.Entity == e.name && (e.keys == nil || e.dropped) {
			f.Entity, f.Kind, f.Template = "", "", ""
		}
	}
}

// giveUp leaves out what a map cannot have, and reports whether something was left.
func (e *entity) giveUp(isCapture bool, reason string) bool {
	switch {
	case isCapture && e.way != noCapture:
		e.refuse(noCapture, reason)
	case len(e.keys) > 0:
		e.keys = nil
	case len(e.links) > 0:
		e.links = nil
		e.notes = append(e.notes, "Its parents are left out: "+reason)
		e.refuse(e.way, "its parents are left out: "+reason)
	case !e.dropped:
		e.refuse(noCapture, reason)
		e.dropped = true
	default:
		return false
	}
	return true
}
