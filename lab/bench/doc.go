// Package bench measures unstale against a floor: the shortest hand-written loop that does the same
// work, on the same servers, in the same run. Both alternate, so a busy machine slows both. Reports
// have the medians and their ratio. The package does not judge figures. Race does the same with
// peers from other projects, which a separate module supplies: see peers.
package bench
