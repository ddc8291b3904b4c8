// Package clock sets the clock of one process forward and back, for tests: of a Go program by an
// overlay of time.Now, of one in C or Java, such as Redis and ZooKeeper, by a library that is
// loaded before others. Nothing else moves: neither the machine's clock, nor clocks that nobody can
// set. The offset lies in a file that the process has mapped into its memory, so a jump takes
// effect at once.
package clock
