// Package vitess tests shops on Vitess: workers connect to the MySQL of each shard, and the shop to
// VTGate. Its tests need the build tag vitess, and vtcombo: scripts/test-vitess.
package vitess
