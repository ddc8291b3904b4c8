package console

import (
	"net/url"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A share with one late row differs from one that is mostly late.
func TestShareLevels(t *testing.T) {
	t.Parallel()
	for late, want := range map[uint64]string{0: "good", 1: "warn", 3: "warn", 100: "warn", 101: "bad", 950: "bad"} {
		if got := (share{store.Share{In: 1000 - late, All: 1000}, late}).Level(); got != want {
			t.Errorf("%d late: %s", late, got)
		}
	}
	if got := (share{}).Level(); got != "dim" {
		t.Error(got)
	}
}

// The texts of the page's own links are understood, unless an entity of the map has that name.
func TestQuestions(t *testing.T) {
	t.Parallel()
	plain, err := invalidation.ParseNames("map.yaml", []byte("version: 1\nentities:\n  product: {keys: [\"shop:{id}\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	named, err := invalidation.ParseNames("map.yaml", []byte("version: 1\nentities:\n  row: {keys: [\"shop:{id}\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m        *invalidation.Map
		as, text string
		want     question
	}{
		{plain, "", "496", question{As: asRow, Question: history.Question{Row: 496}}}, {plain, "", "row 496", question{As: asRow, Question: history.Question{Row: 496}}}, {nil, "", " Row  496 ", question{As: asRow, Question: history.Question{Row: 496}}},
		{plain, "", "dead letter 12", question{As: asLetter, Question: history.Question{Row: 12}}}, {nil, "", "Dead letter 12", question{As: asLetter, Question: history.Question{Row: 12}}},
		{plain, "row", "row 496", question{As: asRow, Question: history.Question{Row: 496}}}, {plain, "row", "dead letter 12", question{As: asKey, Question: history.Question{Key: "dead letter 12"}}},
		{named, "", "row 496", question{As: asObject, Question: history.Question{Entity: "row", ID: "496"}}}, {plain, "trace", "row 496", question{As: asTrace, Question: history.Question{Trace: "row 496"}}},
		{plain, "", "row 0", question{As: asTrace, Question: history.Question{Trace: "row 0"}}}, {plain, "", "row 18446744073709551616", question{As: asTrace, Question: history.Question{Trace: "row 18446744073709551616"}}},
		{plain, "", "row 496 or 1=1", question{As: asTrace, Question: history.Question{Trace: "row 496 or 1=1"}}}, {plain, "", "product 42", question{As: asObject, Question: history.Question{Entity: "product", ID: "42"}}},
	} {
		c.want.Text, c.want.Auto = c.text, c.as == ""
		if got := parseQuestion(url.Values{"q": {c.text}, "as": {c.as}}, c.m); got == nil || *got != c.want {
			t.Errorf("%q as %q: %+v", c.text, c.as, got)
		}
	}
}

// The arguments of an action become words, and what operators wrote stays as it is.
func TestAuditWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, arguments, does string
		want                    []auditDetail
	}{
		{store.ActionRetry, `{"older_than_seconds":5400,"at":"2026-01-02T03:04:05.6Z","last_id":9,"ids":[1,2,18446744073709551615]}`, "Retried dead letters",
			[]auditDetail{{"IDs", "1, 2, 18446744073709551615"}, {"died before the last", "1h30m0s"}, {"counted from", "2026-01-02 03:04:05 UTC"}}},
		{store.ActionDiscard, `{"reason":"unknown_entity","ids":[1,2,3,4,5,6,7,8,9,10,11,12]}`, "Discarded dead letters",
			[]auditDetail{{"IDs", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, and 2 more"}, {"reason", "unknown_entity"}}},
		{store.ActionCorrect, `{"id":7,"entity":"product","params":"{\"n\": 1.10}","entity_before":"prduct","params_before":null,"entity_id":"2026-01-02T03:04:05Z"}`, "Corrected a dead letter",
			[]auditDetail{{"ID", "7"}, {"entity", "product"}, {"ID of the entity", "2026-01-02T03:04:05Z"}, {"parameters", `{"n": 1.10}`}, {"entity before", "prduct"}}},
		{store.ActionPause, `{"reason":"<b>","for_seconds":0}`, "Paused all workers", []auditDetail{{"reason", "<b>"}, {"for", "until resumed"}}},
		{store.ActionInvalidate, `{"entity":"product","id":"4","params":{"n": [1.10]}}`, "Invalidated", []auditDetail{{"ID", "4"}, {"entity", "product"}, {"parameters", `{"n": [1.10]}`}}},
		{store.ActionReplayEnded, `{"batches":2,"keys":3,"refused":0,"damaged":null,"error":"it ended"}`, "Ended a replay", []auditDetail{{"batches", "2"}, {"error", "it ended"}, {"keys", "3"}}},
		{store.ActionDelayed, `{"entity":"","reason":"","scheduled":true,"ids":[1]}`, "Made delayed rows due", []auditDetail{{"IDs", "1"}, {"scheduled rows too", "yes"}}},
		{store.ActionResume, `{}`, "Resumed all workers", nil},
		{"by hand", `written {by hand`, "by hand", []auditDetail{{"", "written {by hand"}}},
	} {
		if got := newAuditRow(store.AuditRecord{Action: c.action, Arguments: c.arguments}); got.Does != c.does || !slices.Equal(got.Details, c.want) {
			t.Errorf("%s: %s %+v", c.arguments, got.Does, got.Details)
		}
	}
	for _, action := range store.ActionNames() {
		if auditActions[action] == "" {
			t.Errorf("%s has no words", action)
		}
	}
}
