// Package maptool has what only "unstale map" does. It checks a map by cases: rows, and the keys that
// they must and must not reach. It describes the names of a map for generators of code, and
// generates Go.
package maptool
