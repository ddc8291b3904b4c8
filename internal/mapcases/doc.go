// Package mapcases checks a map by cases: rows, and the keys that they must and must not reach.
package mapcases
