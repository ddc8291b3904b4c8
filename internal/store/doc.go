// Package store opens the worker's side of MySQL: each part of it is a package with its SQL, on the
// sessions of package session.
package store
