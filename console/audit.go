package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// An auditRow is one action of an operator, in words.
type auditRow struct {
	store.AuditRecord
	Does    string
	Details []auditDetail
}

// An auditDetail is one argument of an action. Without a label, it is all of them.
type auditDetail struct{ Label, Value string }

// auditSource reads the latest actions of operators.
func (c *Console) auditSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		records, total, err := store.NewOrders(c.db).Audit(ctx, store.AuditQuery{}, shownRows)
		if err != nil {
			return nil, err
		}
		rows := make([]auditRow, len(records))
		for i, r := range records {
			rows[i] = newAuditRow(r)
		}
		return rowList[auditRow]{rows, total}, nil
	})
}

// auditActions has the words for each action.
var auditActions = map[string]string{
	store.ActionRetry: "Retried dead letters", store.ActionCorrect: "Corrected a dead letter", store.ActionDiscard: "Discarded dead letters",
	store.ActionPause: "Paused all workers", store.ActionResume: "Resumed all workers",
	store.ActionReplay: "Began a replay", store.ActionReplayEnded: "Ended a replay",
	store.ActionInvalidate: "Invalidated", store.ActionDelayed: "Made delayed rows due",
}

// auditLabels are the words for arguments, in the order of the page.
var auditLabels = [][2]string{
	{"id", "ID"}, {"ids", "IDs"}, {"entity", "entity"}, {"entity_id", "ID of the entity"}, {"params", "parameters"},
	{"entity_before", "entity before"}, {"params_before", "parameters before"}, {"reason", "reason"}, {"map_version", "refused by map"},
	{"older_than_seconds", "died before the last"}, {"newer_than_seconds", "died within"}, {"for_seconds", "for"}, {"since_seconds", "settled within"},
	{"paused_by", "paused by"}, {"since", "since"}, {"at", "counted from"}, {"scheduled", "scheduled rows too"},
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
