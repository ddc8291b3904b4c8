package locktest

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// UnconfirmedRelease fails the test unless a section whose release gets no answer has done its
// work, and Do returns what it returned. The backend of w is beyond the Chasm.
func (w *World) UnconfirmedRelease(cut *Chasm) {
	w.Helper()
	t, said := w.TB, &Log{}
	w.AddMySQL("a", "b")
	l := w.Locker(lock.Config{TTL: 20 * time.Second, Timeout: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(said, nil))})
	refused := errors.New("no")
	for _, end := range []error{nil, refused} {
		testenv.Eventually(t, "the backend", func() bool {
			held, err := l.TryAcquire(t.Context(), "warm")
			return err == nil && held.Release() == nil
		})
		before := l.Statistics().Unconfirmed
		lost := "a"
		if end != nil {
			lost = "b" // the other one may be taken still
		}
		err := l.Do(t.Context(), lost, func(ctx context.Context, held *lock.Held) error {
			Must(t, held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return Add(ctx, tx, lost) }))
			cut.Open.Store(true)
			return end
		})
		cut.Open.Store(false)
		if !errors.Is(err, end) || err != nil && err.Error() != end.Error() {
			t.Errorf("Do: %v, wanted %v", err, end)
		}
		if n := w.Counter(lost); n != 1 {
			t.Errorf("the section counted %d", n)
		}
		if text := said.String(); !strings.Contains(text, "a lock was not released; others wait until its lease ends\" lock="+lost+" ttl=20s error=") {
			t.Errorf("the log says %q", text)
		}
		if n := l.Statistics().Unconfirmed - before; n != 1 {
			t.Errorf("%d releases are not confirmed, wanted 1", n)
		}
	}
}
