package examples

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// traceparent is that of the span in ctx, or "".
func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
