package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/verdict"
	"github.com/unstale/unstale/invalidation"
)

// An answer describes whether a key, or the keys of rows, are stale, and why.
type answer struct {
	Level verdict.Level
	Text  string
	Next  []string
}

// answer returns the answer from the parts that are known.
func (f *finding) answer(now time.Time) (a answer) {
	if f.Key != "" {
		a.Level, a.Text = f.ofKey(now)
	} else {
		a.Level, a.Text = f.ofRows(now)
	}
	a.Next = f.next(now)
	return a
}

// ofRows answers for an entity, a trace or a row.
func (f *finding) ofRows(now time.Time) (verdict.Level, string) {
	switch {
	case f.PastErr != "" || f.PendingErr != "":
		return verdict.Unknown, "Unknown: what happened to these rows cannot be read."
	case len(f.Pending) > 0:
		return verdict.Stale, "Its keys may be stale: " + where(&f.Pending[0], now) + others(len(f.Pending)-1) + "."
	case len(f.Past.Waits) > 0:
		return verdict.Stale, fmt.Sprintf("Its keys may be stale: row %d is in cache_outbox_%s.", f.Row, f.Past.Waits[0].Where)
	case len(f.Past.Found) == 0:
		return verdict.Unknown, "Nothing is known of such a row: none waits, and the journal" + f.begins(now) + " has none. If something changed, the write has inserted no row."
	}
	last := &f.Past.Found[0]
	return verdict.Fresh, "Not stale by its rows: the keys of all were unlinked, the last " + ago(last.SettledAt, now) + " ago, for " + rowName(last) + ". None waits."
}

// ofKey answers for a key.
func (f *finding) ofKey(now time.Time) (verdict.Level, string) {
	var last *history.Settlement
	if f.Past != nil && len(f.Past.Found) > 0 {
		last = &f.Past.Found[0]
	}
	lastly := ""
	if last != nil {
		lastly = " It was last unlinked " + ago(last.SettledAt, now) + " ago, for " + rowName(last) + "."
	}
	exact := f.exact()
	e := f.Entry
	switch {
	case e.InRedis != nil && !*e.InRedis && last != nil:
		return verdict.Fresh, "Not stale: Redis does not hold this key." + lastly
	case e.InRedis != nil && !*e.InRedis && f.Past == nil:
		return verdict.Fresh, "Not stale: Redis does not hold this key. Why it is gone is unknown, since the journal cannot be read."
	case e.InRedis != nil && !*e.InRedis:
		return verdict.Fresh, "Not stale: Redis does not hold this key. The journal" + f.begins(now) + " has no invalidation of it: it has expired, was evicted by Redis, was deleted by others, or was never stored."
	case len(exact) > 0:
		return verdict.Stale, "May be stale: " + where(exact[0], now) + " and has not unlinked it yet." + lastly
	case e.InRedis == nil:
		return verdict.Unknown, "Unknown: whether Redis holds the key cannot be read (" + text(e.Unknown) + ")." + lastly
	case f.differs() != nil:
		return verdict.Stale, "Stale: this entry was loaded " + ago(*e.BornAt, now) + " ago and differs from the database. " + f.differs().Says
	case f.Map != nil && len(f.Origins) == 0 && !f.Cut && last == nil:
		return verdict.Unknown, "Nothing invalidates this key: no entity of the map reaches it, so writes leave it as it is until it expires."
	case f.Past == nil || f.PendingErr != "":
		return verdict.Unknown, "Unknown: when it was last invalidated cannot be read."
	case last == nil:
		return verdict.Unknown, "No row has named this key since the journal begins" + f.begins(now) + ". If its data have changed since, the write has inserted no row."
	case e.BornAt == nil:
		return verdict.Unknown, "Unknown: it is not an entry of package cache, so when its value was loaded is unknown." + lastly
	case last.BornAt != nil && e.BornAt.Before(*last.BornAt):
		return verdict.Stale, "Stale: it was loaded " + ago(*e.BornAt, now) + " ago, before it was last invalidated." + lastly + " Either Redis has lost the delete, which workers repair, or a reader has stored it without a lease."
	}
	return verdict.Fresh, "Not stale: it was loaded " + ago(*e.BornAt, now) + " ago, after it was last invalidated." + lastly
}

// differs returns what a shadow read found about the entry that Redis has now, or nil.
func (f *finding) differs() *foundEntry {
	for i := range f.Old {
		if f.Entry.BornAt != nil && f.Old[i].lease.Equal(*f.Entry.BornAt) {
			return &f.Old[i]
		}
	}
	return nil
}

// exact returns the rows that reach the key and have not unlinked it: those that wait for a worker,
// have failed, or are dead letters.
func (f *finding) exact() (list []*operate.PendingRow) {
	for i := range f.Pending {
		p := &f.Pending[i]
		if p.Table == "delayed" && p.Reason == "" { // scheduled, or a repeat
			continue
		}
		if slices.ContainsFunc(f.Origins, func(o invalidation.Origin) bool {
			return o.Entity == p.Entity && (o.ID == p.EntityID || o.ID == "" && len(o.Params) == 0)
		}) {
			list = append(list, p)
		}
	}
	return list
}

// next lists what will happen.
func (f *finding) next(now time.Time) (list []string) {
	for i := range f.Pending {
		if p := &f.Pending[i]; p.Table == "dead" {
			how := fmt.Sprintf(": unstale dead retry %d", p.ID)
			if f.acts {
				how = ": the timeline has the actions."
			}
			list = append(list, fmt.Sprintf("Dead letter %d (%s %s) waits for an operator%s", p.ID, text(p.Entity), text(p.EntityID), how))
		} else {
			then := ""
			if p.Table == "delayed" {
				then = " then"
			}
			list = append(list, capital(where(p, now))+": a worker processes it"+then+".")
		}
	}
	for _, s := range f.Sweeps {
		list = append(list, fmt.Sprintf("A sweep of %s was requested %s ago and runs, possibly a second time.", text(s.Name), span(s.Age())))
	}
	if f.Past != nil {
		for _, w := range f.Past.Waits {
			if w.DueAt != nil {
				list = append(list, "The row is processed again in "+ago(now, *w.DueAt)+".")
			}
		}
	}
	e := f.Entry
	if e == nil {
		return list
	}
	if e.Hold != nil {
		list = append(list, "For "+span(*e.Hold)+" no reader may store it (tombstone).")
	}
	if e.Lease != nil {
		list = append(list, "A reader is loading it; its lease ends in "+span(*e.Lease)+".")
	}
	switch {
	case e.InRedis == nil || !*e.InRedis || e.TTL == nil:
	case *e.TTL < 0:
		list = append(list, "It does not expire: it stays until it is invalidated.")
	default:
		list = append(list, "It expires in "+span(*e.TTL)+".")
	}
	return list
}

// where describes a row that waits.
func where(p *operate.PendingRow, now time.Time) string {
	row := fmt.Sprintf("row %d (%s %s)", p.ID, text(p.Entity), text(p.EntityID))
	switch {
	case p.Table == "dead":
		return fmt.Sprintf("dead letter %d (%s %s, %s) waits for an operator", p.ID, text(p.Entity), text(p.EntityID), text(p.Reason))
	case p.Table == "outbox":
		return row + " waits in cache_outbox for " + ago(p.Since, now)
	case p.DueAt != nil && p.DueAt.After(now):
		row = "delayed " + row + " is due in " + ago(now, *p.DueAt)
	default:
		row = "delayed " + row + " is due"
	}
	if p.Reason != "" {
		row += " (" + text(p.Reason) + ")"
	}
	return row
}

func rowName(s *history.Settlement) string {
	switch {
	case s.Sweep != 0:
		return fmt.Sprintf("sweep %d", s.Sweep)
	case s.Row == 0:
		return "a scheduled row (" + text(s.Entity) + " " + text(s.EntityID) + ")"
	}
	return fmt.Sprintf("row %d (%s %s)", s.Row, text(s.Entity), text(s.EntityID))
}

// begins returns since when the journal has rows.
func (f *finding) begins(now time.Time) string {
	if f.Past == nil || f.Past.Since == nil {
		return ""
	}
	return " (which begins " + ago(*f.Past.Since, now) + " ago)"
}

func others(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// ago formats the time between two times; the database's clock may be ahead of this host's.
func ago(from, to time.Time) string { return span(max(to.Sub(from), 0)) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
