// Package collector tests spans against the receiver of OpenTelemetry's Collector, and has tests only. It is a module of its
// own, so that nobody who imports unstale gets the Collector with it.
package collector
