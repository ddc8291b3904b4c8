// Package tree holds the source tree to its plan: which package may import which, what the released binary links, and
// that every package says what it is for. It has tests only.
package tree
