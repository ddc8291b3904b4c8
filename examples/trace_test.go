package examples

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// A row carries the trace of the request that wrote it, also where the function that enqueues it
// says nothing of traces.
func TestTrace(t *testing.T) {
	t.Parallel()
	db := shop(t)
	request := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: trace.FlagsSampled,
	}))
	if err := changePrice(request, db, 42, 4490); err != nil {
		t.Fatal(err)
	}
	if err := changePrice(t.Context(), db, 42, 4590); err != nil { // of no request
		t.Fatal(err)
	}
	for id, want := range []string{"00-00000000000000000000000000000001-0000000000000002-01", ""} {
		var got string
		if err := db.QueryRowContext(t.Context(), "SELECT trace FROM cache_outbox WHERE id = ?", id+1).Scan(&got); err != nil || got != want {
			t.Errorf("row %d has the trace %q, %v; wanted %q", id+1, got, err, want)
		}
	}
}
