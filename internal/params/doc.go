// Package params knows the parameters of a row: the JSON object in the params column, which
// applications write and the worker reads. Both sides check it with [Parse], so that what Enqueue
// accepts the map can use.
//
// It is pure, keeps values exactly as they were written, and knows neither the map nor the outbox.
// It does not say which names an entity needs: that is the map's business.
package params
