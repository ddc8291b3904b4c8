// Package otlp sends spans to a collector of OpenTelemetry: OTLP over HTTP, as JSON, without an SDK.
//
// An [Exporter] keeps what it is given in a bounded queue and sends it from a goroutine of its own, so that no collector,
// whatever it does, makes anybody wait: what finds no room, or is refused, is dropped and counted. [Links] collects the
// traces that a span points to. The package makes spans without a parent alone, all of which are sampled.
//
// The format is that of https://opentelemetry.io/docs/specs/otlp/, of which it knows what it needs.
package otlp
