// Package bench measures unstale beside a floor: the shortest hand-written loop that does the same work, on the same
// servers, in the same run. Ours and the floor take turns, so that a busy machine slows both, and what is reported is
// the median of each and their ratio. Nothing here judges a figure. Race does the same with peers from elsewhere,
// which a module of their own brings along: see peers.
package bench
