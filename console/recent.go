package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

const (
	recentEvery   = 500 * time.Millisecond // one statement
	recentBatches = 40                     // read; sweeps are among them
	shownBatches  = 12
	recentBody    = 16 << 10 // bytes; a batch of some hundred rows
	// shownEntries is how many rows of a batch are listed.
	shownEntries = 3
)

// A recentBatch is one batch of the panel "recent".
type recentBatch struct {
	store.RecentBatch
	Shown []recentEntry
	More  int // rows that are not shown
}

// A recentEntry is one row of a batch, or a finished sweep.
type recentEntry struct {
	store.JournalEntry
	Name  string         // one key, pattern or set of the row
	Names int            // the others
	After *time.Duration // from its insert until its keys were gone; nil: unknown, or it was scheduled
	// it may be a repeat, which is late on purpose
	MayRepeat bool
}

// Scheduled reports whether an application scheduled the row, so its insert says nothing about how
// late it was.
func (e *recentEntry) Scheduled() bool { return e.ID == 0 && !e.IsSweep() }

// recentSource reads the end of the journal.
func (c *Console) recentSource() *source {
	var before []recentBatch
	return c.reads(recentEvery, func(ctx context.Context) (any, error) {
		known, ids := map[uint64]*recentBatch{}, []uint64(nil)
		for i := range before {
			known[before[i].ID] = &before[i]
			ids = append(ids, before[i].ID)
		}
		found, err := store.NewJournal(c.db).Recent(ctx, recentBatches, recentBody, ids)
		if err != nil {
			return nil, err
		}
		list := make([]recentBatch, len(found))
		for i := range found {
			if k := known[found[i].ID]; k != nil {
				list[i] = *k
			} else {
				list[i] = newRecentBatch(found[i], c.cfg.runningMap())
			}
		}
		before = list
		return onlyRows(list), nil
	})
}

// onlyRows returns the newest batches of rows: a pattern that rows ask for all the time has a sweep
// for each batch.
func onlyRows(all []recentBatch) []recentBatch {
	var rows []recentBatch
	for _, b := range all {
		if b.Rows > 0 && len(rows) < shownBatches {
			rows = append(rows, b)
		}
	}
	if len(rows) > 0 {
		return rows
	}
	return all[:min(len(all), shownBatches)]
}

func newRecentBatch(b store.RecentBatch, m *invalidation.Map) recentBatch {
	out := recentBatch{RecentBatch: b}
	for _, entry := range b.Entries[:min(len(b.Entries), shownEntries)] {
		e := recentEntry{JournalEntry: entry}
		if names := slices.Concat(e.Keys, e.Patterns, e.Sets); len(names) > 0 {
			e.Name, e.Names = names[0], len(names)-1
		}
		if b.Journey != nil && e.WrittenMicros != 0 && b.Journey.Unlinked != 0 && !e.Scheduled() {
			after := b.SettledAt.Add(-b.Journey.Unlinked).Sub(time.UnixMicro(e.WrittenMicros))
			e.After, e.MayRepeat = &after, history.MayRepeat(m, e.Entity, after)
		}
		out.Shown = append(out.Shown, e)
	}
	out.More, out.Entries = max(b.Rows, len(b.Entries))-len(out.Shown), nil
	return out
}

// A rowList is the first rows of a table.
type rowList[Row any] struct {
	Rows  []Row
	Total int // up to store.MaxExactCount + 1
}

// More returns how many rows are not listed, as text, or "".
func (l rowList[Row]) More() string {
	switch {
	case l.Total <= len(l.Rows):
		return ""
	case l.Total > store.MaxExactCount:
		return upTo(l.Total)
	}
	return output.Count(l.Total - len(l.Rows))
}

// readDelayed reads the delayed rows that are due first.
func (c *Console) readDelayed(ctx context.Context) (any, error) {
	rows, total, err := store.NewActions(c.db).DelayedRows(ctx, store.DelayedQuery{}, shownRows)
	if err != nil {
		return nil, err
	}
	return rowList[store.DelayedRow]{rows, total}, nil
}

// An auditRow is one action of an operator, in words.
type auditRow struct {
	store.AuditRecord
	Does    string
	Details []auditDetail
}

// An auditDetail is one argument of an action. Without a label, it is all of them.
type auditDetail struct{ Label, Value string }

// readAudit reads the latest actions of operators.
func (c *Console) readAudit(ctx context.Context) (any, error) {
	records, total, err := store.NewActions(c.db).Audit(ctx, store.AuditQuery{}, shownRows)
	if err != nil {
		return nil, err
	}
	rows := make([]auditRow, len(records))
	for i, r := range records {
		rows[i] = newAuditRow(r)
	}
	return rowList[auditRow]{rows, total}, nil
}

// auditActions has the words for each action.
var auditActions = map[string]string{
	store.ActionRetry: "Retried dead letters", store.ActionCorrect: "Corrected a dead letter", store.ActionDiscard: "Discarded dead letters",
	store.ActionPause: "Paused all workers", store.ActionResume: "Resumed all workers",
	store.ActionReplay: "Began a replay", store.ActionReplayEnded: "Ended a replay",
	store.ActionInvalidate: "Invalidated", store.ActionDelayed: "Made delayed rows due",
	store.ActionCaptureDrop: "Dropped triggers", store.ActionCaptureApply: "Created triggers",
}

// auditLabels are the words for arguments, in the order of the page.
var auditLabels = [][2]string{
	{"id", "ID"}, {"ids", "IDs"}, {"entity", "entity"}, {"entity_id", "ID of the entity"}, {"params", "parameters"},
	{"entity_before", "entity before"}, {"params_before", "parameters before"}, {"reason", "reason"}, {"map_version", "refused by map"},
	{"older_than_seconds", "died before the last"}, {"newer_than_seconds", "died within"}, {"for_seconds", "for"}, {"since_seconds", "settled within"},
	{"paused_by", "paused by"}, {"since", "since"}, {"at", "counted from"}, {"scheduled", "scheduled rows too"}, {"tables", "tables"},
}

// newAuditRow describes a record. Names that it does not know stay as they are.
func newAuditRow(r store.AuditRecord) auditRow {
	row, given := auditRow{AuditRecord: r, Does: cmp.Or(auditActions[r.Action], r.Action)}, map[string]json.RawMessage{}
	if json.Unmarshal([]byte(r.Arguments), &given) != nil { // written by hand
		row.Details = []auditDetail{{Value: r.Arguments}}
		return row
	}
	add := func(name, label string) {
		if value := auditValue(name, given[name]); value != "" {
			row.Details = append(row.Details, auditDetail{label, value})
		}
		delete(given, name)
	}
	delete(given, "last_id") // the IDs say it
	for _, known := range auditLabels {
		add(known[0], known[1])
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		add(name, name)
	}
	return row
}

// auditValue returns an argument as text, or "" for one without a value.
func auditValue(name string, raw json.RawMessage) string {
	var text string
	var list []json.RawMessage
	var seconds float64
	switch {
	case raw == nil:
		return ""
	case json.Unmarshal(raw, &text) == nil: // or null
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && (name == "at" || name == "since") {
			return absolute(at)
		}
		return text
	case json.Unmarshal(raw, &list) == nil:
		var parts []string
		for _, part := range list[:min(len(list), shownNames)] {
			parts = append(parts, auditValue("", part))
		}
		if more := len(list) - shownNames; more > 0 {
			parts = append(parts, "and "+output.Count(more)+" more")
		}
		return strings.Join(parts, ", ")
	case strings.HasSuffix(name, "_seconds") && json.Unmarshal(raw, &seconds) == nil && seconds > 0:
		return time.Duration(seconds * float64(time.Second)).String()
	case name == "for_seconds":
		return "until resumed"
	case string(raw) == "0" || string(raw) == "false":
		return ""
	case string(raw) == "true":
		return "yes"
	}
	return string(raw)
}

// readFound reads the old entries that were found most recently.
func (c *Console) readFound(ctx context.Context) (any, error) {
	return history.LatestOld(ctx, c.db, shownRows)
}
