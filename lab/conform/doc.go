// Package conform judges a reader of any language against docs/protocol.md. It starts a Redis and a
// proxy that holds each round trip of the reader until a schedule permits it, plays the writer and
// the worker itself, and tells the reader in lines of JSON what to fetch: see README.md. It shares
// no code with package cache, except in the driver for that package.
package conform
