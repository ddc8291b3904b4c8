package outbox

import (
	"context"
	"sync/atomic"
)

// tracer is the function of SetTracer.
var tracer atomic.Pointer[func(context.Context) string]

// SetTracer sets the function that returns the Trace of rows whose [Invalidation] has none. For
// example, trace returns the W3C traceparent of the span in ctx. It gets the context of the call of
// [Enqueue] or [Writes.Enqueue], once per call. If it returns "", the rows have no trace.
//
// If trace returns text that is invalid UTF-8 or longer than MaxTrace characters, the row is still
// inserted. Its trace is then "no trace: " and the reason. A panic of trace reaches the caller of
// Enqueue.
//
// Call SetTracer once, before the first Enqueue. A nil function disables it. SetTracer is safe for
// concurrent use, and trace must be too.
func SetTracer(trace func(ctx context.Context) string) {
	if trace == nil {
		tracer.Store(nil)
		return
	}
	tracer.Store(&trace)
}

// traceOf returns the trace of the rows that are enqueued with ctx and name none.
func traceOf(ctx context.Context) string {
	trace := tracer.Load()
	if trace == nil {
		return ""
	}
	text := (*trace)(ctx)
	if err := checkText("trace", text, MaxTrace, false); err != nil {
		return "no trace: " + err.Problem
	}
	return text
}
