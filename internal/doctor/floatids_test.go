package doctor_test

import (
	"strings"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/store"
)

// testFloatIDs plants IDs in the journal that a driver wrote as floats: of an entity with the type
// int, of one with integers too, and of one whose IDs are text.
func testFloatIDs(w *testbed) {
	w.t.Helper()
	m := w.inputs.Map
	defer func() {
		w.inputs.Map = m
		w.sql("DELETE FROM shop.cache_outbox_journal")
	}()
	w.useMap(everything + "types: {product_id: int}\n")
	w.sql("DELETE FROM shop.cache_outbox_journal")
	if f := w.examine("float-ids"); len(f) != 1 || f[0].Severity != doctor.OK {
		w.t.Errorf("an empty journal: %+v", f)
	}
	entries := []store.JournalEntry{{ID: 1, Entity: "product", EntityID: "4.2e1"}, {ID: 2, Entity: "order", EntityID: "7"}, {ID: 3, Entity: "order", EntityID: "8.0"}, {ID: 4, Entity: "version", EntityID: "1.10"}}
	body, err := store.EncodeEntries(entries)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.db.DB.ExecContext(w.t.Context(), "INSERT INTO shop.cache_outbox_journal (worker, row_count, map_version, hashes, body) VALUES ('web-1', 4, 'a', ?, ?)", store.Hashes(entries), body); err != nil {
		w.t.Fatal(err)
	}
	f := w.examine("float-ids")
	if len(f) != 1 || f[0].Severity != doctor.Warning || !strings.Contains(f[0].Evidence, `product "4.2e1" in batch `) || !strings.Contains(f[0].Evidence, `order "8.0" in batch `) || strings.Contains(f[0].Evidence, "version") {
		w.t.Errorf("%+v", f)
	}
}
