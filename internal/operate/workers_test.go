package operate_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/store/storetest"
)

// A status record replaces the previous one. Its ages are by the database's clock. Records older
// than a day are deleted.
func TestNotesOfWorkers(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	note := func(n operate.WorkerNote) {
		t.Helper()
		n.MapVersion, n.Channel, n.Format = "v1", "c", "event"
		if err := s.Workers.NoteWorker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	ago := 3 * time.Second
	note(operate.WorkerNote{ID: "A", State: "redis network", Error: "EOF", For: time.Hour})
	note(operate.WorkerNote{ID: "A", State: operate.WorkerWorking, For: time.Minute, Drained: &ago, MapWarning: "m.yaml:1:1: fault"})
	note(operate.WorkerNote{ID: "B", State: operate.WorkerStopped})
	note(operate.WorkerNote{ID: "C", State: operate.WorkerWorking})
	if _, err := env.DB.Exec("UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 25 HOUR WHERE id = 'C'"); err != nil {
		t.Fatal(err)
	}
	list, err := s.Workers.Workers(t.Context())
	if err != nil || len(list) != 3 || list[0].ID != "B" || list[0].Lives() || list[2].ID != "C" || list[2].Lives() {
		t.Fatalf("%+v, %v", list, err)
	}
	a := list[1]
	if !a.Works() || a.Error != "" || a.For < time.Minute || a.For > 2*time.Minute || a.Drained == nil || *a.Drained < ago || a.Silent > time.Minute || a.Name != "test" || a.Channel != "c" || a.MapWarning != "m.yaml:1:1: fault" || list[0].MapWarning != "" {
		t.Errorf("%+v", a)
	}
	if err := s.Workers.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err = s.Workers.Workers(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}
