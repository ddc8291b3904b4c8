package worker

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// BenchmarkBatch takes 1,000 claimed rows through everything but the servers.
func BenchmarkBatch(b *testing.B) {
	const size = 1000
	m := couponMap(b, 1)
	rows := couponRows(size)
	cfg := Config{}.WithDefaults()
	b.ReportAllocs()
	for b.Loop() {
		batchOf(b, m, rows, cfg)
	}
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "rows/s")
}

// batchOf does what a batch does to rows, without MySQL and Redis.
func batchOf(t testing.TB, m *invalidation.Map, rows []store.ClaimedRow, cfg Config) store.Settlement {
	b := newBatch(m, rows, cfg.lightBudget())
	answers, err := b.resolve(t.Context(), nil, cfg.BatchKeys, false)
	if err != nil {
		t.Fatal(err)
	}
	b.expand(answers, cfg.lightBudget())
	if gone := b.blameFailures(); len(gone) != len(rows) {
		t.Fatalf("%d keys of %d rows", len(gone), len(rows))
	}
	return b.settlement(cfg)
}

// couponMap has that many entities, each with one exact key; the first is called coupon0.
func couponMap(t testing.TB, entities int) *invalidation.Map {
	text := []byte("version: 1\nentities:\n")
	for i := range entities {
		text = fmt.Appendf(text, "  coupon%d: {keys: [\"zahraah:prod:coupon%d:{id}\"]}\n", i, i)
	}
	m, err := invalidation.Parse("map.yaml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// couponRows are rows of one exact key each.
func couponRows(n int) []store.ClaimedRow {
	rows := make([]store.ClaimedRow, n)
	for i := range rows {
		id := uint64(i + 1)
		rows[i] = store.ClaimedRow{ID: id, FirstID: id, Entity: "coupon0", EntityID: fmt.Sprintf("code-%d", i)}
	}
	return rows
}
