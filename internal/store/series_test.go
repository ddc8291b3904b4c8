package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// A series has a point for each step, also without rows, and adds up workers. Folded hours are not
// in it.
func TestSeries(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	var now int64
	if err := env.DB.QueryRow("SELECT UNIX_TIMESTAMP() DIV 60").Scan(&now); err != nil {
		t.Fatal(err)
	}
	start := now/3*3 - 30 // of the point ten steps ago
	for _, row := range []struct {
		minute int64
		worker string
	}{{start, "a"}, {start, "b"}, {start + 2, "a"}, {start + 3, "a"}, {start, ""}, {start - 1000, "a"}} {
		if _, err := env.DB.Exec(`INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead)
VALUES (?, ?, 1, 10, 7, 8, 9, 1)`, row.minute, row.worker); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []struct {
		minute         int64
		worker, change string
	}{
		{start, "a", `waiting = 7, oldest_ms = 3, entities = '{"a":[10,8],"":[3,1]}'`}, {start, "b", `entities = '{"a":[10,8]}'`},
		{start + 2, "a", `waiting = 0, oldest_ms = 1500, entities = '{"a":[10,8]}'`},
	} {
		if _, err := env.DB.Exec("UPDATE cache_outbox_minutes SET "+change.change+" WHERE minute = ? AND worker = ?", change.minute, change.worker); err != nil {
			t.Fatal(err)
		}
	}
	points, err := store.Series(t.Context(), s.Sessions, 20, 3)
	if err != nil || len(points) != 20 {
		t.Fatal(points, err)
	}
	for i, p := range points {
		want := store.Point{At: p.At, Entities: store.Entities{}}
		switch p.At.Unix() / 60 {
		case start:
			want = store.Point{
				At: p.At, Rows: 30, Within100ms: 21, Within1s: 24, Within10s: 27, Dead: 3,
				Looked: true, Waiting: 7, Oldest: 1500 * time.Millisecond, Entities: store.Entities{"a": {Rows: 30, Within1s: 24}, "": {Rows: 3, Within1s: 1}},
			}
		case start + 3:
			want.Rows, want.Within100ms, want.Within1s, want.Within10s, want.Dead = 10, 7, 8, 9, 1
		}
		if !reflect.DeepEqual(p, want) || i > 0 && p.At.Sub(points[i-1].At) != 3*time.Minute {
			t.Errorf("%d: %+v, wanted %+v", i, p, want)
		}
	}
	if last := points[19].At.Unix() / 60; last < now/3*3 || points[8].At.Unix()/60 > start {
		t.Errorf("the last point is of minute %d, now is %d", last, now)
	}
}
