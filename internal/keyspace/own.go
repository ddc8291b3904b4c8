package keyspace

// OwnPrefixes begin the names that a worker alone uses: beacons, and sets that it takes apart.
var OwnPrefixes = []string{beaconPrefix, setPrefix}
