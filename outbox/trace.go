package outbox

import (
	"context"
	"sync/atomic"
)

// tracer is what SetTracer was given.
var tracer atomic.Pointer[func(context.Context) string]

// SetTracer has trace yield the Trace of all rows that this process enqueues from now on and whose [Invalidation] has
// none, such as the W3C traceparent of the span in the context. It is called once for each call of [Enqueue] or
// [Writes.Enqueue] with such rows, with the context of that call and before anything is written; "" leaves the rows without a trace.
//
// A trace fails no write: text that is not valid UTF-8, or longer than MaxTrace characters, is left out, and the rows
// carry "no trace: " and the reason in its place. What trace panics with reaches the caller of Enqueue.
//
// Call it once, before the first row; nil ends it. Safe for concurrent use, and trace has to be as well.
func SetTracer(trace func(ctx context.Context) string) {
	if trace == nil {
		tracer.Store(nil)
		return
	}
	tracer.Store(&trace)
}

// traceOf is the trace of the rows that are enqueued with ctx and name none.
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
