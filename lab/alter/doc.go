// Package alter changes captured tables as docs/capture.md describes, with the real tools, while
// eight writers change the rows. Each write has a key of its own in Redis, as a reader stores it before the
// write. When a recipe has ended and the outbox is empty, a key that still exists is stale.
//
// A recipe fails if a key is stale, if the triggers differ from the map, if a write fails with an
// unexpected error, or if there were too few writes meanwhile. If it ends with an invalidation of the
// whole table, the keys are also counted before this step: recipes that must lose writes without it
// prove that the check finds a loss.
package alter
