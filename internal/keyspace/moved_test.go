package keyspace_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A new tag counts as moved only if its master was there before, or has joined all others, and
// nothing was missing then.
func TestFollowMoves(t *testing.T) {
	t.Parallel()
	abc := [][2]string{{"0", "A"}, {"1", "B"}, {"3", "C"}}
	for name, c := range map[string]struct {
		doubt        bool
		before, want []string
		old, list    [][2]string
	}{
		"the first list":                       {list: abc},
		"nothing moves":                        {old: abc, list: abc},
		"nothing moves, and one did before":    {before: []string{"3"}, old: abc, list: abc, want: []string{"3"}},
		"a slot moves to another master":       {old: abc, list: [][2]string{{"0", "B"}, {"2", "A"}, {"3", "C"}}, want: []string{"2"}},
		"it moves while something is missing":  {doubt: true, old: abc, list: [][2]string{{"0", "B"}, {"2", "A"}, {"3", "C"}}},
		"a master joins":                       {old: abc, list: [][2]string{{"0", "A"}, {"1", "B"}, {"3", "C"}, {"4", "D"}}, want: []string{"4"}},
		"a replica takes over":                 {old: abc, list: [][2]string{{"0", "a"}, {"1", "B"}, {"3", "C"}}},
		"it takes over, and slots move":        {old: abc, list: [][2]string{{"2", "a"}, {"1", "B"}, {"3", "C"}}},
		"it takes over a tag that moved":       {before: []string{"0"}, old: abc, list: [][2]string{{"0", "a"}, {"1", "B"}, {"3", "C"}}},
		"a tag that moved moves on":            {before: []string{"0"}, old: abc, list: [][2]string{{"0", "B"}, {"2", "A"}, {"3", "C"}}, want: []string{"0", "2"}},
		"a master gives away all and is gone":  {old: abc, list: [][2]string{{"0", "B"}, {"3", "C"}}},
		"a tag that moved is not used anymore": {before: []string{"1"}, old: abc, list: [][2]string{{"0", "B"}, {"3", "C"}}},
	} {
		if got := keyspace.FollowMoves(!c.doubt, c.before, c.old, c.list); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A slot that moves takes the beacons of its old master with it. The acknowledged writes of others
// there are not lost, as long as a Keyspace has run before and after that: it confirms them for all
// others.
func TestMovedSlotIsNoLoss(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, false)
	fill(t, c.Client, names(100, "other:%d")...) // an empty master has lost nothing
	options := keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour}
	stopped := done(t, open(t, options), names(30, "shop:%d")...)
	last := map[string]uint64{stopped.Epoch: stopped.N}
	survived := func(k *keyspace.Keyspace) uint64 {
		t.Helper()
		has, err := k.Beacons.Survived(t.Context(), []string{stopped.Epoch})
		if err != nil {
			t.Fatal(err)
		}
		return has[stopped.Epoch]
	}
	compared, unsure := open(t, options), open(t, options)
	for _, k := range []*keyspace.Keyspace{compared, unsure} {
		if n := survived(k); n < stopped.N {
			t.Fatalf("before anything moves, %d of %d survived", n, stopped.N)
		}
	}
	if !compared.Shards.CannotTell(time.Time{}) {
		t.Error("it has not compared yet")
	}
	if err := compared.Beacons.ConfirmMoved(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if compared.Shards.Unconfirmed() {
		t.Error("nothing has moved")
	}
	if open(t, keyspace.Options{Redis: at(testenv.OwnRedis(t).URL()), BeaconTTL: time.Hour}).Shards.CannotTell(time.Now()) {
		t.Error("outside a Cluster, anyone can tell")
	}
	if !compared.Shards.CannotTell(time.Now()) {
		t.Error("another node may have another list")
	}
	testenv.Eventually(t, "one that has compared can tell, while nothing moves", func() bool { return !compared.Shards.CannotTell(time.Time{}) })

	slot := int(protocol.Slot("0")) // the tag of the master that has it
	from := 0
	for slot >= c.First(from+1) {
		from++
	}
	c.Migrate(t, slot, from, (from+1)%3, true)
	tags := func() []string {
		t.Helper()
		// which is redirected, and notices
		if _, err := compared.Beacons.CheckBeacon(t.Context()); err != nil {
			t.Fatal(err)
		}
		tags, err := compared.Shards.Moved(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tags
	}
	testenv.Eventually(t, "it notices", func() bool { return len(tags()) == 1 && compared.Shards.Unconfirmed() })
	if tag := tags()[0]; protocol.Slot(tag) == uint16(slot) {
		t.Errorf("tag %s", tag)
	}
	if _, err := strconv.Atoi(tags()[0]); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name string
		k    *keyspace.Keyspace
		want uint64
	}{{"one that had compared", compared, stopped.N}, {"one that starts", open(t, options), 0}} {
		if n := survived(c.k); (n >= stopped.N) != (c.want > 0) {
			t.Errorf("for %s, %d of %d survived", c.name, n, stopped.N)
		}
	}
	if err := compared.Beacons.ConfirmMoved(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	confirmed := func() {
		t.Helper()
		for name, k := range map[string]*keyspace.Keyspace{"one that had compared": compared, "one that starts": open(t, options)} {
			if n := survived(k); n < stopped.N {
				t.Errorf("after it is confirmed, for %s %d of %d survived", name, n, stopped.N)
			}
		}
	}
	confirmed()
	testenv.Eventually(t, "it confirms again, until all write the new tag", func() bool {
		if err := compared.Beacons.ConfirmMoved(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		return len(tags()) == 0 && !compared.Shards.Unconfirmed()
	})
	confirmed()

	// Another one moves, and its old master loses what it has under its new tag: nothing is certain
	// then.
	tag := "1"
	slot = int(protocol.Slot(tag))
	for c.First(from+1) <= slot {
		from++
	}
	for c.First(from) > slot {
		from--
	}
	c.Migrate(t, slot, from, (from+1)%3, true)
	testenv.Eventually(t, "it notices", func() bool { return len(tags()) == 1 })
	moved := tags()[0]
	position, err := compared.Beacons.CheckBeacon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 7 {
		if err := c.Client.Del(t.Context(), fmt.Sprintf("unstale:beacon:{%s}:%s:%d", moved, position.Epoch, n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wantLoss(t, position, func() error { _, err := compared.Beacons.CheckBeacon(t.Context()); return err })
	if n := survived(compared); n != 0 {
		t.Errorf("after a loss, %d survived", n)
	}
}
