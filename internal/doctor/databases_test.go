package doctor_test

import (
	"context"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// A served is a database as workers publish it.
type served struct {
	source, server string // source "": the ID of the inputs' outbox
	lastBatch      uint64
}

// serve publishes the inputs' database, which is well, and then others, as workers do.
func serve(others ...served) func(*testbed) {
	return func(w *testbed) {
		w.t.Helper()
		w.publish(served{"", "own", 7})
		if all := w.examine("databases"); len(all) != 1 || all[0].Severity != doctor.OK {
			w.t.Errorf("one database: %+v", all)
		}
		for _, one := range others {
			w.publish(one)
		}
	}
}

func (w *testbed) publish(s served) {
	w.t.Helper()
	if s.source == "" {
		s.source = w.source()
	}
	d := status.Database{Source: s.source, Server: s.server, Schema: "shop", Names: []string{"zahraah:product:*"}}
	lost := func(_ context.Context, had store.Mark) (lost uint64, newest store.Mark, err error) {
		if s.lastBatch < had.ID {
			lost = had.ID
		}
		return lost, store.Mark{ID: s.lastBatch}, nil
	}
	// A worker that publishes the database again is known.
	if _, _, err := status.PostDatabase(w.t.Context(), w.inputs.Redis.StatusHashes, d, d.Field(), lost); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testbed) source() string {
	w.t.Helper()
	source, err := w.inputs.MySQL.Source(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return source
}

// stopServing removes all records, as if their workers had stopped.
func (w *testbed) stopServing() { w.do("del " + string(keyspace.SourcesHash)) }
