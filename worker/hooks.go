package worker

import (
	"math"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// Hooks are functions that a worker calls as it works. The goroutine that processes batches calls
// them, so they must not block. A nil hook is not called.
type Hooks struct {
	// Batch is called after each attempt to process a batch that has a row with a trace. Package
	// workerotel makes OpenTelemetry spans of the reports.
	Batch func(BatchReport)
}

// A BatchReport describes one attempt to process a batch.
type BatchReport struct {
	Start, End time.Time
	Rows       int      // rows in the batch
	Traces     []string // distinct values of the column trace, in the order of the rows
	// FirstID and LastID are the lowest and the highest ID in cache_outbox. Both are 0 if the batch
	// has only rows that were inserted into cache_outbox_delayed.
	FirstID, LastID uint64
	// Err is the outage that made the attempt fail, or nil. The worker then tries the rows again.
	Err error
	// Outage is the state of Err, as in the metric unstale_outages_total. It is empty if Err is
	// nil.
	Outage string
	// Result and Receivers are zero if Err is not nil. Receivers is the number of subscribers that
	// Redis delivered the messages to.
	Result    Result
	Receivers int
}

// report calls the hook for one attempt to process rows, if any of them has a trace.
func (h Hooks) report(rows []store.ClaimedRow, began time.Time, r Result, s store.Settlement, failed error) {
	if h.Batch == nil {
		return
	}
	traces := distinctTraces(rows)
	if len(traces) == 0 {
		return
	}
	report := BatchReport{
		Start: began, End: time.Now(), Rows: len(rows), Traces: traces,
		Err: failed, Result: r, Receivers: s.Marks.Receivers,
	}
	if failed != nil {
		report.Outage = maintenance.State(failed)
	}
	report.FirstID, report.LastID = idRange(rows)
	h.Batch(report)
}

func distinctTraces(rows []store.ClaimedRow) (traces []string) {
	seen := map[string]bool{"": true}
	for i := range rows {
		if trace := rows[i].Trace; !seen[trace] {
			seen[trace] = true
			traces = append(traces, trace)
		}
	}
	return traces
}

// idRange returns the lowest and the highest ID in cache_outbox, or zeros.
func idRange(rows []store.ClaimedRow) (first, last uint64) {
	first = math.MaxUint64
	for i := range rows {
		if id := rows[i].FirstID; id != 0 { // otherwise the row was never in cache_outbox
			first, last = min(first, id), max(last, id)
		}
	}
	return min(first, last), last
}
