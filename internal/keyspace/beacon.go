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
// Each of the two keys has copies, written with it: allkeys-random may evict one. A copy with the
// number proves that nothing before it is lost, since all copies follow the unlinks. Without any
// copy, the writes count as lost.
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
	Gone     bool     // the beacon is missing, and not older
}

func (l *Loss) Error() string {
	text := fmt.Sprintf("redis has lost what it acknowledged: position %d of epoch %s", l.Position.N, l.Position.Epoch)
	if l.Gone {
		text += " (no copy of its beacon is left; if maxmemory-policy is allkeys-random, Redis evicts them; set allkeys-lru or allkeys-lfu)"
	}
	return text
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

// copies is how many keys have each of the two values of a beacon.
const copies = 3

// copyNumbers are the numbers of these keys, those of each value alternately.
var copyNumbers = [2 * copies]int{0, 1, 3, 4, 5, 6}

// beaconKey names one of the keys of a beacon.
func beaconKey(tag, epoch string, slot int) string {
	if tag != "" {
		tag = "{" + tag + "}:"
	}
	return beaconPrefix + tag + epoch + ":" + strconv.Itoa(slot)
}
