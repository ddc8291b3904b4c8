package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// proofWorld runs listings of cache_outbox, a second apart.
type proofWorld struct {
	t     *testing.T
	proof *proof
	began time.Time
	ids   []uint64 // what waits
	rests bool
	limit int // rows of a listing; 0: all
}

func newProofWorld(t *testing.T) *proofWorld {
	return &proofWorld{t: t, proof: &proof{limit: 12 * time.Second}, began: time.Unix(1e9, 0)}
}

// list makes the listing of a second, and returns which rows are late.
func (w *proofWorld) list(second int) (late []uint64) {
	at := w.began.Add(time.Duration(second) * time.Second)
	l := store.Listing{Began: at, Now: at}
	for _, id := range w.ids {
		list := &l.Lists[store.ListedHot]
		if w.limit == 0 || len(list.Rows) < w.limit {
			list.Rows = append(list.Rows, store.ListedRow{ID: id, Place: id, At: w.began.Add(-time.Minute)})
		}
		list.Last = id
	}
	for _, r := range w.proof.observe(l, w.rests)[store.ListedHot] {
		late = append(late, r.ID)
	}
	return late
}

func (w *proofWorld) wantAsOf(second int) {
	w.t.Helper()
	if got, want := w.proof.proven(), w.began.Add(time.Duration(second)*time.Second); !got.Equal(want) {
		w.t.Errorf("proven as of %v, wanted %v", got.Sub(w.began), want.Sub(w.began))
	}
}

// A listing without rows proves its own start. One with rows is proven by the first later listing
// without these rows, with any other rows. The row with ID 0 is a row.
func TestProof(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	if asOf := w.proof.proven(); !asOf.IsZero() {
		t.Errorf("before the first listing: %v", asOf)
	}
	w.list(0)
	w.wantAsOf(0)
	w.ids = []uint64{0, 1}
	w.list(1)
	w.ids = []uint64{0}
	w.list(2)
	w.wantAsOf(0)
	w.ids = []uint64{2, 3}
	w.list(3)
	w.wantAsOf(1)
	w.ids = []uint64{3, 4}
	w.list(4)
	w.wantAsOf(1)
	w.ids = []uint64{4}
	w.list(5)
	w.wantAsOf(3)
	w.ids = nil
	w.list(6)
	w.wantAsOf(6)
}

// A worker that starts behind a backlog knows from the first listing that nothing older than its
// oldest row waits.
func TestProofBehindABacklog(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	w.ids = []uint64{5}
	w.list(0)
	w.wantAsOf(-60)
	w.list(1)
	w.wantAsOf(-60)
	w.ids = nil
	w.list(2)
	w.wantAsOf(2)
}

// A full listing is proven when all rows are gone that waited then, not only those that it shows.
func TestProofOfAFullListing(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	w.list(0)
	w.limit, w.ids = 2, []uint64{1, 2, 3, 4, 5}
	w.list(1)
	w.ids = []uint64{3, 4, 5, 6, 7, 8}
	w.list(2)
	w.wantAsOf(0)
	w.ids = []uint64{5, 6, 7, 8, 9}
	w.list(3)
	w.wantAsOf(0)
	w.ids = []uint64{6, 7, 8, 9, 10}
	w.list(4)
	w.wantAsOf(1)
}

// A row is late from the limit on after the first listing that shows it, until it is gone. Rows of
// a backlog that come and go are not.
func TestLateRows(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	for second := range 30 {
		id := uint64(100 + second)
		w.ids = []uint64{1, 2, id, id + 1}
		if second >= 20 {
			w.ids = w.ids[1:]
		}
		if second == 25 {
			w.ids = w.ids[1:]
		}
		var want []uint64
		switch {
		case second == 25:
		case second >= 20 && second < 25:
			want = []uint64{2}
		case second >= 12 && second < 25:
			want = []uint64{1, 2}
		}
		if got := w.list(second); !slices.Equal(got, want) {
			t.Errorf("second %d: %v are late, wanted %v", second, got, want)
		}
		if second == 25 {
			break
		}
	}
	w.wantAsOf(0)
}

// A row is passed over from the listing on that shows that a row behind it is gone. Rows that a
// full listing no longer shows may only wait behind its end.
func TestPassedRows(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	passed := func(second int) (rows []string) {
		at := w.began.Add(time.Duration(second) * time.Second)
		l := store.Listing{Began: at, Now: at}
		for _, id := range w.ids[:min(len(w.ids), store.MaxListing)] {
			l.Lists[store.ListedHot].Rows = append(l.Lists[store.ListedHot].Rows, store.ListedRow{ID: id, Place: id, At: at})
		}
		for _, r := range w.proof.observe(l, w.rests)[store.ListedHot] {
			if r.passed > 0 {
				rows = append(rows, fmt.Sprint(r.ID, " for ", r.passed))
			}
		}
		return rows
	}
	for id := uint64(10); id < 2000; id++ {
		w.ids = append(w.ids, id)
	}
	passed(0)
	w.ids = append([]uint64{1}, w.ids...) // pushes one behind the end
	passed(1)
	if got := passed(15); len(got) > 0 {
		t.Errorf("nothing is gone: %v", got)
	}
	w.ids = []uint64{1, 10, 12, 20, 30}
	passed(16)
	w.ids = []uint64{1, 10, 20}
	passed(17)
	if got, want := passed(28), []string{"1 for 12s", "10 for 12s", "20 for 12s"}; !slices.Equal(got, want) {
		t.Errorf("%v, wanted %v", got, want)
	}
	w.rests = true
	passed(29)
	w.rests = false
	if got := passed(41); len(got) > 0 {
		t.Errorf("after a rest: %v", got)
	}
}

// While the worker rests nothing is late. Its limit begins again afterwards.
func TestLateRowsOfAWorkerThatRests(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t)
	w.ids = []uint64{1}
	for second := range 60 {
		w.rests = second < 40
		late := w.list(second)
		if want := second >= 39+12; (len(late) > 0) != want {
			t.Errorf("second %d: %v are late", second, late)
		}
		if next := w.proof.nextLate(); next.Sub(w.began) != time.Duration(min(second, 39)+12)*time.Second {
			t.Errorf("second %d: the next is late at %v", second, next.Sub(w.began))
		}
	}
}

// A delayed row that fails and is delayed again is another one. A sweep is never late.
func TestLateDelayedRowsAndSweeps(t *testing.T) {
	t.Parallel()
	p := &proof{limit: 12 * time.Second}
	began := time.Unix(1e9, 0)
	for second := range 40 {
		at := began.Add(time.Duration(second) * time.Second)
		l := store.Listing{Began: at, Now: at}
		due := uint64(second / 5)
		l.Lists[store.ListedDue] = store.List{Rows: []store.ListedRow{{ID: 1, Place: due, At: at}}, Last: due}
		l.Lists[store.ListedSweeps] = store.List{Rows: []store.ListedRow{{ID: 1, Place: 1, At: at}}, Last: 1}
		if late := p.observe(l, false); len(late[store.ListedDue])+len(late[store.ListedSweeps]) > 0 {
			t.Errorf("second %d: %v are late", second, late)
		}
		if asOf := p.tables[store.ListedDue].asOf.Sub(began); asOf != time.Duration(max(second/5*5-5, 0))*time.Second {
			t.Errorf("second %d: delayed rows are proven as of %v", second, asOf)
		}
	}
	if asOf := p.proven(); !asOf.Equal(began) {
		t.Errorf("a sweep waits, and all is proven as of %v", asOf.Sub(began))
	}
}
