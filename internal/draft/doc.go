// Package draft writes the draft of a map from the tables of a database, for a person to edit. For
// example, a table products becomes the entity product, with a key, a capture, and what its foreign
// keys make stale.
//
// Guarantees:
//
//  1. The map passes the checks of package invalidation, and package capture can create its
//     triggers: each table is tried, and what the database refuses is left out with the reason.
//  2. The same tables make the same text.
//  3. Names of keys are not kept. Families of keys are kept, with each value replaced.
//
// Limits: the columns that matter, parents without a foreign key and the keys of a table without
// names of keys in use are guesses. Comments in the map mark them.
package draft
