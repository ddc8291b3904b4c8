package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// An Answer describes whether a key, or the keys of rows, are stale, and why.
type Answer struct {
	Level status.Level `json:"level"`
	Text  string       `json:"text"`
	Next  []string     `json:"next"` // what will happen; null: nothing is known to
}

// answer returns the answer from the parts that are known.
func (f *Finding) answer(now time.Time) (a Answer) {
	if f.Key != "" {
		a.Level, a.Text = f.ofKey(now)
	} else {
		a.Level, a.Text = f.ofRows(now)
	}
	a.Next = f.next(now)
	return a
}

// ofRows answers for an entity, a trace or a row.
func (f *Finding) ofRows(now time.Time) (status.Level, string) {
	place := f.waits()
	switch {
	case f.PastErr != "" || f.PendingErr != "":
		return status.Unknown, "Unknown: what happened to these rows cannot be read."
	case len(f.Pending) > 0:
		return status.Stale, "Its keys may be stale: " + where(&f.Pending[0], now) + others(len(f.Pending)-1) + "."
	case place != "":
		return status.Stale, fmt.Sprintf("Its keys may be stale: row %d is in %s.", f.Row, place)
	case len(f.Sweeps) > 0:
		return status.Stale, "Its keys may be stale: " + sweeping(&f.Sweeps[0]) + " and is not finished."
	case f.unread() != "":
		return status.Unknown, "Unknown: " + f.unread()
	case len(f.Past.Found) == 0 && len(f.Scheduled)+len(f.Past.Waits) > 0:
		return status.Unknown, "Unknown: such a row is scheduled, and the journal" + f.begins(now) + " has none."
	case len(f.Past.Found) == 0:
		return status.Unknown, "Nothing is known of such a row: none waits, and the journal" + f.begins(now) + " has none. If something changed, the write has inserted no row."
	}
	last := &f.Past.Found[0]
	return status.Fresh, "Not stale by its rows: the keys of all were unlinked, the last " + ago(last.SettledAt, now) + " ago, for " + rowName(last) + ". None waits."
}

// waits returns the table in which the row waits, or "". A row that is scheduled, or repeated by the
// map, does not wait until it is due.
func (f *Finding) waits() string {
	if f.Past == nil || f.Row == 0 {
		return ""
	}
	for _, w := range f.Past.Waits {
		if w.DueAt == nil || w.Reason != "" || f.clock.IsZero() || !w.DueAt.After(f.clock) {
			return strings.TrimSuffix("cache_outbox_"+w.Table, "_outbox")
		}
	}
	return ""
}

// ofKey answers for a key. It is not stale only if that is certain.
func (f *Finding) ofKey(now time.Time) (status.Level, string) {
	last, lastly := f.last(), ""
	if last != nil {
		lastly = " It was last unlinked " + ago(last.SettledAt, now) + " ago, for " + rowName(last) + "."
	}
	e := f.Entry
	if e.InRedis != nil && !*e.InRedis {
		switch {
		case last != nil:
			return status.Fresh, "Not stale: Redis does not hold this key." + lastly
		case f.Past == nil:
			return status.Fresh, "Not stale: Redis does not hold this key. Why it is gone is unknown, since the journal cannot be read."
		}
		return status.Fresh, "Not stale: Redis does not hold this key. The journal" + f.begins(now) + " has no invalidation of it: it has expired, was evicted by Redis, was deleted by others, or was never stored."
	}
	before, unsure := f.older()
	sweep := slices.IndexFunc(f.Sweeps, func(s store.Sweep) bool { return e.BornAt == nil || f.gap.compare(*e.BornAt, s.RequestedAt) <= 0 })
	switch {
	case len(f.Pending) > 0 && f.Pending[0].May == "":
		return status.Stale, "May be stale: " + where(&f.Pending[0], now) + " and has not unlinked it yet." + lastly
	case len(f.Pending) > 0:
		return status.Stale, "May be stale: " + where(&f.Pending[0], now) + " and may reach this key: " + f.Pending[0].May + "." + lastly
	case sweep >= 0:
		return status.Stale, "May be stale: " + sweeping(&f.Sweeps[sweep]) + " and is not finished." + lastly
	case e.InRedis == nil:
		return status.Unknown, "Unknown: whether Redis holds the key cannot be read (" + output.Data(e.Unknown) + ")." + lastly
	case f.differs() != nil:
		return status.Stale, "Stale: this entry was loaded " + ago(*e.BornAt, now) + " ago and differs from the database. " + f.differs().Says
	case before != nil && before.BornAt != nil:
		return status.Stale, "Stale: it was loaded " + ago(*e.BornAt, now) + " ago, before it was last invalidated." + lastly + " Either Redis has lost the delete, which workers repair, or a reader has stored it without a lease."
	case before != nil:
		return status.Stale, "May be stale: it was loaded " + ago(*e.BornAt, now) + " ago, before " + rowName(before) + " was done." + lastly
	case f.Past == nil || f.PendingErr != "":
		return status.Unknown, "Unknown: when it was last invalidated cannot be read."
	case f.unread() != "":
		return status.Unknown, "Unknown: " + f.unread() + lastly
	case last == nil && f.Map == nil:
		return status.Unknown, "Unknown: no row has named this key since the journal begins" + f.begins(now) + ". " + capital(f.noMap) + ": which rows reach the key is unknown."
	case len(f.Origins) == 0 && !f.Cut && last == nil && f.reach.member:
		return status.Unknown, "Unknown: no entity of the map names this key, but it may belong to an index set or a tag of the map."
	case len(f.Origins) == 0 && !f.Cut && last == nil:
		return status.Unknown, "Nothing invalidates this key: no entity of the map reaches it, so writes leave it as it is until it expires."
	case last == nil:
		return status.Unknown, "No row has named this key since the journal begins" + f.begins(now) + ". If its data have changed since, the write has inserted no row."
	case e.BornAt == nil:
		return status.Unknown, "Unknown: it is not an entry of package cache, so when its value was loaded is unknown." + lastly
	case unsure != nil:
		return status.Unknown, "Unknown: whether it was loaded before " + rowName(unsure) + " was done is unknown, since the clocks of Redis and the database cannot be compared exactly enough." + lastly
	}
	return status.Fresh, "Not stale: it was loaded " + ago(*e.BornAt, now) + " ago, after it was last invalidated." + lastly
}

// last returns the newest settlement that has unlinked the key, or nil. A row with only a pattern
// or an index set leaves that to a sweep.
func (f *Finding) last() *Settlement {
	if f.Past == nil {
		return nil
	}
	for i := range f.Past.Found {
		if s := &f.Past.Found[i]; s.Sweep != 0 || slices.Contains(s.Keys, f.Key) {
			return s
		}
	}
	return nil
}

// older returns a settlement that is newer than the entry, and one that may be newer.
func (f *Finding) older() (before, unsure *Settlement) {
	if f.Past == nil || f.Entry.BornAt == nil {
		return nil, nil
	}
	for i := range f.Past.Found {
		s, order := &f.Past.Found[i], 0
		if s.BornAt != nil {
			order = f.Entry.BornAt.Compare(*s.BornAt)
		} else if order = f.gap.compare(*f.Entry.BornAt, s.SettledAt); order == 0 && unsure == nil {
			unsure = s
		}
		if order < 0 && (before == nil || before.BornAt == nil && s.BornAt != nil) {
			before = s
		}
	}
	return before, unsure
}

// unread describes the first part that is incomplete, or returns "".
func (f *Finding) unread() string {
	switch {
	case f.More:
		return "more rows or sweeps wait than a search reads, and others may reach it: unstale status."
	case f.OldErr != "":
		return "whether a spot check or a shadow read found an old value cannot be read."
	case len(f.Past.Damaged) > 0:
		return "parts of the journal that may name it are damaged."
	case f.Past.WaitsUnknown:
		return "where the row is now cannot be read."
	}
	return ""
}

// differs returns what a shadow read found about the entry that Redis has now, or nil.
func (f *Finding) differs() *OldEntry {
	for i := range f.Old {
		if f.Entry.BornAt != nil && f.Old[i].lease.Equal(*f.Entry.BornAt) {
			return &f.Old[i]
		}
	}
	return nil
}

// next lists what will happen.
func (f *Finding) next(now time.Time) (list []string) {
	for _, p := range f.Waiting() {
		may := ""
		if p.May != "" {
			may = " It may reach this key: " + p.May + "."
		}
		if p.Table == "dead" {
			how := fmt.Sprintf(": unstale dead retry %d", p.ID)
			if f.Acts {
				how = ": the timeline has the actions"
			}
			list = append(list, fmt.Sprintf("Dead letter %d (%s %s) waits for an operator%s.%s", p.ID, output.Data(p.Entity), output.Data(p.EntityID), how, may))
		} else {
			then := ""
			if p.Table == "delayed" {
				then = " then"
			}
			list = append(list, capital(where(&p, now))+": a worker processes it"+then+"."+may)
		}
	}
	if n := len(f.Pending) + len(f.Scheduled) - shownPending; n > 0 {
		list = append(list, "Other rows wait: "+output.Count(n)+".")
	}
	for i := range f.Sweeps[:min(len(f.Sweeps), shownPending)] {
		list = append(list, capital(sweeping(&f.Sweeps[i]))+" and runs, possibly a second time.")
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
		list = append(list, "For "+output.Span(*e.Hold)+" no reader may store it (tombstone).")
	}
	if e.Lease != nil {
		list = append(list, "A reader is loading it; its lease ends in "+output.Span(*e.Lease)+".")
	}
	switch {
	case e.InRedis == nil || !*e.InRedis || e.TTL == nil:
	case *e.TTL < 0:
		list = append(list, "It does not expire: it stays until it is invalidated.")
	default:
		list = append(list, "It expires in "+output.Span(*e.TTL)+".")
	}
	return list
}

// where describes a row that waits.
func where(p *Waiting, now time.Time) string {
	row := fmt.Sprintf("row %d (%s %s)", p.ID, output.Data(p.Entity), output.Data(p.EntityID))
	switch {
	case p.Table == "dead":
		return fmt.Sprintf("dead letter %d (%s %s, %s) waits for an operator", p.ID, output.Data(p.Entity), output.Data(p.EntityID), output.Data(p.Reason))
	case p.Table == "outbox":
		return row + " waits in cache_outbox for " + ago(p.Since, now)
	case p.DueAt != nil && p.DueAt.After(now):
		row = "delayed " + row + " is due in " + ago(now, *p.DueAt)
	default:
		row = "delayed " + row + " is due"
	}
	if p.Reason != "" {
		row += " (" + output.Data(p.Reason) + ")"
	}
	return row
}

// sweeping describes a sweep that waits.
func sweeping(s *store.Sweep) string {
	says := "a sweep of " + output.Data(s.Name) + " was requested " + output.Span(s.Age()) + " ago"
	if s.Attempts > 0 {
		says += ", has failed (" + output.Data(s.Error) + ")"
	}
	return says
}

func rowName(s *Settlement) string {
	switch {
	case s.Sweep != 0:
		return fmt.Sprintf("sweep %d", s.Sweep)
	case s.Row == 0:
		return "a scheduled row (" + output.Data(s.Entity) + " " + output.Data(s.EntityID) + ")"
	}
	return fmt.Sprintf("row %d (%s %s)", s.Row, output.Data(s.Entity), output.Data(s.EntityID))
}

// begins returns since when the journal has rows.
func (f *Finding) begins(now time.Time) string {
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
func ago(from, to time.Time) string { return output.Span(max(to.Sub(from), 0)) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
