package store

import "strings"

// Sums are the sums of rows of cache_outbox_minutes. The weighted sums, W and WW, estimate the
// sums of all batches of a minute and worker: a minute with few batches has more of them sampled.
type Sums struct {
	Batches     uint64 `db:"batches"`
	Rows        uint64 `db:"rows_settled"`
	Within100ms uint64 `db:"within_100ms"`
	Within1s    uint64 `db:"within_1s"`
	Within10s   uint64 `db:"within_10s"`
	Dead        uint64 `db:"dead"`

	Checks
	Shadows   uint64 `db:"shadow_reads"`
	Confirmed uint64 `db:"confirmed"`

	WSampled       float64 `db:"w_sampled"`
	WEntryBatches  float64 `db:"w_entry_batches"`
	WStaleBatches  float64 `db:"w_stale_batches"`
	WKnown         float64 `db:"w_known"`
	WWithEntry     float64 `db:"w_with_entry"`
	WStale         float64 `db:"w_stale"`
	WWSampled      float64 `db:"ww_sampled"`
	WWEntryBatches float64 `db:"ww_entry_batches"`
}

// columns are the columns of Sums, and sums are the expressions that add them up. In a row that is
// folded already, the weighted sums are columns.
var columns, sums = func() (string, string) {
	// Batches of which nothing is known count by the share of the checks that are unknown.
	const weight = "(GREATEST(batches * (with_entry + absent) / (NULLIF(checked, 0) + 0E0), sampled) / (NULLIF(sampled, 0) + 0E0))"
	var names, terms []string
	add := func(name, term string) {
		names, terms = append(names, name), append(terms, "COALESCE(SUM("+term+"), 0) AS "+name)
	}
	for name := range strings.FieldsSeq(`batches rows_settled within_100ms within_1s within_10s dead
sampled entry_batches stale_batches checked with_entry stale absent unknown repaired shadow_reads confirmed`) {
		add(name, name)
	}
	weighted := func(name, term string) { add(name, "IF(worker = '', "+name+", "+term+")") }
	for _, name := range []string{"sampled", "entry_batches", "stale_batches", "with_entry", "stale"} {
		weighted("w_"+name, name+" * "+weight)
	}
	weighted("w_known", "(with_entry + absent) * "+weight)
	for _, name := range []string{"sampled", "entry_batches"} {
		weighted("ww_"+name, name+" * "+weight+" * "+weight)
	}
	return strings.Join(names, ", "), strings.Join(terms, ", ")
}()
