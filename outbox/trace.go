package outbox

import (
	"context"
	"sync/atomic"
)

// tracer is the function of SetTracer.
var tracer atomic.Pointer[func(context.Context) string]

// SetTracer makes trace provide the Trace of all rows that this process enqueues from now on and
// whose [Invalidation] has none, for example the W3C traceparent of the span in the context. It is
// called once per call of [Enqueue] or [Writes.Enqueue] with such rows, with the context of that
// call and before anything is written. If it returns "", the rows have no trace.
//
// A trace never fails a write. Text that is not valid UTF-8, or longer than MaxTrace characters, is
// left out, and the rows have "no trace: " and the reason instead. A panic of trace reaches the
// caller of Enqueue.
//
// Call it once, before the first row; nil disables it. Safe for concurrent use; trace must be too.
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
