package worker

import (
	"math"
	"strconv"
	"time"

	"github.com/unstale/unstale/internal/otlp"
	"github.com/unstale/unstale/internal/store"
)

// trace makes the span of one try to carry rows, if any of them is of a sampled trace. It never waits, and does nothing
// where there are no spans.
func (w *engine) trace(rows []store.ClaimedRow, began time.Time, r Result, s store.Settlement, failed error) {
	if w.spans == nil || len(rows) == 0 {
		return
	}
	var links otlp.Links
	first, last := uint64(math.MaxUint64), uint64(0)
	for i := range rows {
		links.Add(rows[i].Trace)
		if id := rows[i].FirstID; id != 0 { // else it never was in cache_outbox
			first, last = min(first, id), max(last, id)
		}
	}
	if links.Len() == 0 {
		return
	}
	span := otlp.Span{Name: "unstale batch", Start: began, End: time.Now(), Links: links, Attributes: []otlp.Attribute{
		otlp.Text("messaging.system", "unstale"),
		otlp.Text("messaging.operation.type", "process"),
		otlp.Number("messaging.batch.message_count", len(rows)),
	}}
	if last != 0 { // ids are names, and may be too large for an attribute's number
		span.Attributes = append(span.Attributes, otlp.Text("unstale.first_id", strconv.FormatUint(first, 10)),
			otlp.Text("unstale.last_id", strconv.FormatUint(last, 10)))
	}
	if failed != nil {
		span.Error = failed.Error()
		span.Attributes = append(span.Attributes, otlp.Text("unstale.outcome", "failed"), otlp.Text("error.type", outageState(failed)))
	} else {
		span.Attributes = append(span.Attributes, otlp.Text("unstale.outcome", "settled"),
			otlp.Number("unstale.rows.unlinked", r.Unlinked), otlp.Number("unstale.rows.delayed", r.Delayed),
			otlp.Number("unstale.rows.dead", r.Dead), otlp.Number("unstale.keys", r.Keys), otlp.Number("unstale.sweeps", r.Sweeps),
			otlp.Number("unstale.receivers", s.Marks.Receivers))
	}
	w.spans.Add(span)
}
