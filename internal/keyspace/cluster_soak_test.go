//go:build soak

package keyspace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// An unavailable master delays only what concerns its keys: not other keys, not their beacons, and
// no message.
func TestClusterShardAway(t *testing.T) {
	t.Parallel()
	c := &testCluster{testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")}
	k := open(t, keyspace.Options{Redis: at(c.URL()), Timeout: 3 * time.Second, BeaconTTL: time.Hour})
	tags := c.tags()
	channel := "channel:{" + tags[0] + "}" // the messages' way is lost, too
	keys := []string{"a:{" + tags[0] + "}", "a:{" + tags[1] + "}", "a:{" + tags[2] + "}", "b:{" + tags[0] + "}"}
	all := targets(keys...)
	all[0].Hold, all[1].Hold = time.Minute, time.Minute
	fill(t, c.Client, keys...)
	mustUnlink(t, k, targets("x:{"+tags[0]+"}", "x:{"+tags[1]+"}", "x:{"+tags[2]+"}"))
	heard := subscribe(t, c.Direct[1], channel)
	k.Publisher.Introduce("s", time.Second)
	mustPublish(t, k, channel, "a", "b")
	mustBeat(t, k, channel, "")
	before := decode(t, heard())
	wantMessage(t, decode(t, heard()), 2, 0, &protocol.Beat{Source: "s", Lease: 1000})

	if err := c.Nodes[0].Pause(); err != nil { // answers no client, and refuses nothing
		t.Fatal(err)
	}
	for range 3 {
		done, err := k.Unlinker.Unlink(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		wantAway(t, done.Failures, 0, 3)
		if done.Position == (keyspace.Position{}) {
			t.Error("it is not a position")
		}
		if _, err := k.Beacons.CheckBeacon(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantLeft(t, c.Client, keys[1:3])
	if got := fmt.Sprint(k.Shards.Away()); got != "["+c.Nodes[0].Addr()+"]" {
		t.Errorf("away are %s", got)
	}
	mustPublish(t, k, channel, keys[1:3]...)
	wantMessage(t, decode(t, heard()), 1, 2, &protocol.Beat{Source: "s", Lease: 1000, First: true, After: before.Epoch, AfterSeq: 2})
	position, err := k.Beacons.CheckBeacon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := k.Beacons.Survived(t.Context(), []string{position.Epoch}); err != nil || n[position.Epoch] != position.N {
		t.Errorf("survived %v of %d, %v", n, position.N, err)
	}

	if err := c.Nodes[0].Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the master's return", func() bool {
		if position, err = k.Beacons.CheckBeacon(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(k.Shards.Away()) == 0
	})
	mustUnlink(t, k, all)
	wantLeft(t, c.Client, keys)
	// Its beacon has caught up, so its absence is not a loss.
	if n, err := k.Beacons.Survived(t.Context(), []string{position.Epoch}); err != nil || n[position.Epoch] < position.N {
		t.Errorf("survived %v of %d, %v", n, position.N, err)
	}
}
