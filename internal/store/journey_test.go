package store

import (
	"bytes"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// A timeline is decoded as it was encoded, with and without the numbers of messages. A truncated
// one is unknown.
func TestJourney(t *testing.T) {
	t.Parallel()
	// Time must not pass, since the lengths of encoded times depend on it.
	synctest.Test(t, testJourney)
}

func testJourney(t *testing.T) {
	entries := func() []JournalEntry { return make([]JournalEntry, 2) }
	now := time.Now()
	s := struct {
		Journal []JournalEntry
		Marks   Marks
	}{entries(), Marks{Claimed: now, Unlinked: now, Published: now, Receivers: 3}}
	s.Journal[0].WrittenMicros, s.Journal[1].WrittenMicros = 2_000_000, 1_000_000
	before := s.Marks.Journey(s.Journal)
	s.Marks.Runs = []MessageRun{{EpochHash("a"), 1, 1}, {EpochHash("b"), 1 << 40, 1<<40 + 7}}
	packed := s.Marks.Journey(s.Journal)
	if len(before)+(8+1+1)+(8+6+1) < len(packed) {
		t.Errorf("%d bytes without runs, %d with them", len(before), len(packed))
	}
	for _, c := range []struct {
		bytes []byte
		runs  []MessageRun
	}{{before, nil}, {packed, s.Marks.Runs}} {
		got := entries()
		j := readJourney(c.bytes, got)
		if j == nil || !reflect.DeepEqual(j.Runs, c.runs) || j.Receivers != 3 || got[1].WrittenMicros != 1_000_000 || j.Claimed < time.Microsecond {
			t.Errorf("%+v of %+v, wanted runs %v", j, got, c.runs)
		}
	}
	after := len(before) + 10 // where the second run begins
	for n := range packed {
		if j := readJourney(packed[:n], entries()); (j != nil) != (n == len(before) || n == after) {
			t.Errorf("%d bytes: %+v", n, j)
		}
	}
	if j := readJourney(append(bytes.Clone(packed), 0), entries()); j != nil {
		t.Errorf("%+v", j)
	}
}
