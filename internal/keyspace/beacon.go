package keyspace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// A beacon is a write marker that reveals whether Redis still has the writes that it acknowledged.
//
// Every pipeline that unlinks has a position. It begins with reading the beacon and ends with
// writing its number into it. Replication and persistence keep the order of writes, and a pipeline
// goes over one connection to one server, so a server that has the number has everything before it.
// After a failover to a replica that lagged, or a restart from an old snapshot, the number is
// missing. The older value shows the last position that the server has.
//
// A beacon has two keys, which pipelines write alternately, and each value names its predecessor:
// "7 6" in one and "6 5" in the other. So a number that was written before the beacon was checked
// does not hide the gap before it ("7 6" and "4 3"), and neither does a crash between the two. It
// needs only GET and SET, which a user of least privilege has.
//
// Limits: in a Cluster, a name that is redirected (MOVED, ASK) is unlinked after the beacon of its
// node was written. Its loss goes undetected only if that node also fails over before its beacon is
// written again.

// beaconPrefix begins the names of beacons: the prefix, in Cluster a hash tag for each master, the
// epoch, and the number of the key.
const beaconPrefix = protocol.BeaconPrefix

// A Position is a place in the order of the acknowledged writes of one epoch. A Keyspace without
// beacons has the zero Position.
type Position struct {
	Epoch string // random; another one after each loss
	N     uint64 // from 1; not every number is used
}

// A Loss means that Redis has lost writes that it had acknowledged: it failed over to a replica
// that lagged, or came back with older data or none. Call Survived for the position of the last
// write that it has, unlink everything after that again, and repeat the call that returned the
// Loss.
type Loss struct {
	Position Position // the last one that Redis had acknowledged
}

func (l *Loss) Error() string {
	return fmt.Sprintf("redis has lost what it acknowledged: position %d of epoch %s", l.Position.N, l.Position.Epoch)
}

// A value is the content of one key of a beacon. The zero value is a missing key.
type value struct{ n, before uint64 }

func (v value) String() string { return fmt.Sprintf("%d %d", v.n, v.before) }

// parseValue reads a value; anything else counts as missing.
func parseValue(text string) value {
	n, before, _ := strings.Cut(text, " ")
	var v value
	var err, also error
	v.n, err = strconv.ParseUint(n, 10, 64)
	v.before, also = strconv.ParseUint(before, 10, 64)
	if err != nil || also != nil || v.before >= v.n {
		return value{}
	}
	return v
}

// beaconKey names one of the two keys of a beacon.
func beaconKey(tag, epoch string, slot int) string {
	if tag != "" {
		tag = "{" + tag + "}:"
	}
	return beaconPrefix + tag + epoch + ":" + strconv.Itoa(slot)
}
