// Package upgrade checks what an upgrade does. [Baseline] compares databases that come to the present
// schema on different ways: from empty, by the steps before the baseline, and from an older version.
//
// [Run] runs the workers of two releases on the schema of the newer one, under load: in
// parallel, in place of each other, stopped and killed. The keys of each committed row must go, and
// no worker may report an error.
package upgrade
