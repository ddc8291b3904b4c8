package store_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A note replaces the one before, its ages are those by the database's clock, and what is silent for a day is forgotten.
func TestNotesOfWorkers(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	note := func(n store.WorkerNote) {
		t.Helper()
		n.MapVersion, n.Channel, n.Format = "v1", "c", "event"
		if err := s.NoteWorker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	ago := 3 * time.Second
	note(store.WorkerNote{ID: "A", State: "redis network", Error: "EOF", For: time.Hour})
	note(store.WorkerNote{ID: "A", State: store.WorkerWorking, For: time.Minute, Drained: &ago, MapWarning: "m.yaml:1:1: fault"})
	note(store.WorkerNote{ID: "B", State: store.WorkerStopped})
	note(store.WorkerNote{ID: "C", State: store.WorkerWorking})
	if _, err := env.DB.Exec("UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 25 HOUR WHERE id = 'C'"); err != nil {
		t.Fatal(err)
	}
	list, err := s.Workers(t.Context())
	if err != nil || len(list) != 3 || list[0].ID != "B" || list[0].Lives() || list[2].ID != "C" || list[2].Lives() {
		t.Fatalf("%+v, %v", list, err)
	}
	a := list[1]
	if !a.Works() || a.Error != "" || a.For < time.Minute || a.For > 2*time.Minute || a.Drained == nil || *a.Drained < ago || a.Silent > time.Minute || a.Name != "test" || a.Channel != "c" || a.MapWarning != "m.yaml:1:1: fault" || list[0].MapWarning != "" {
		t.Errorf("%+v", a)
	}
	if err := s.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err = s.Workers(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}
