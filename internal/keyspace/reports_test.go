package keyspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A Publish returns the numbers of its messages, even with other messages between them.
func TestPublishTellsItsNumbers(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	for _, c := range []struct {
		f           protocol.Format
		keys        []string
		first, last uint64
	}{
		{protocol.FormatEvent, names(1, "key:%d"), 1, 1}, {protocol.FormatArray, names(1, "key:%d"), 0, 0}, {protocol.FormatEvent, nil, 0, 0},
		{protocol.FormatEvent, names(2001, "key:%d"), 2, 4}, {protocol.FormatEvent, names(3000, fmt.Sprintf("%01400d:%%d", 0)), 5, 7},
	} {
		done, err := k.Publisher.Publish(t.Context(), channel, c.f, keyspace.News{Keys: c.keys})
		if err != nil {
			t.Fatal(err)
		}
		if c.first == 0 {
			if len(done.Runs) > 0 {
				t.Errorf("%+v has numbers", done)
			}
			for range done.Messages {
				hear()
			}
			continue
		}
		next := c.first
		for _, run := range done.Runs {
			if run.First != next {
				t.Errorf("%+v, wanted messages %d to %d", done.Runs, c.first, c.last)
			}
			for ; next <= run.Last; next++ {
				if m := decode(t, hear()); m.Epoch != run.Epoch || m.Seq != next {
					t.Errorf("heard %d of %s, wanted %d of %+v", m.Seq, m.Epoch, next, run)
				}
			}
		}
		if next != c.last+1 {
			t.Errorf("%+v, wanted messages %d to %d", done.Runs, c.first, c.last)
		}
	}
}

// Reports come newest first, over several pages, down to a time, without entries that are not
// reports.
func TestReports(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	const most = 2500
	pipe := r.Client.Pipeline()
	for i := range most {
		values := protocol.Report{Process: "p", Epoch: "e", First: uint64(i + 1), Last: uint64(i + 1)}.Fields()
		if i == 2000 {
			values = []string{"process", "p"}
		}
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, ID: fmt.Sprintf("%d-%d", 1000+i/2, i), Values: values})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ since, want int }{{0, most - 1}, {2000, 500 - 1}, {1000 + most/2, 0}} {
		var got []uint64
		err := k.Contents.Reports(t.Context(), time.UnixMilli(int64(c.since)), func(r protocol.Report, at time.Time) {
			if got = append(got, r.First); at.UnixMilli() != 1000+int64(r.First-1)/2 {
				t.Errorf("%+v is of %s", r, at)
			}
		})
		if err != nil || len(got) != c.want || !slices.IsSortedFunc(got, func(a, b uint64) int { return int(b) - int(a) }) {
			t.Errorf("since %d: %d reports, %v, wanted %d", c.since, len(got), err, c.want)
		}
	}
}

// In a Cluster an account needs no more than docs/accounts.md names.
func TestReportsOfACluster(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, false)
	for _, node := range c.Direct {
		if err := node.Do(t.Context(), "acl", "setuser", "operator", "on", ">secret", "-@all", "+get", "+xrevrange", "+cluster|slots", "%R~"+protocol.ReportKey).Err(); err != nil {
			t.Fatal(err)
		}
	}
	values := protocol.Report{Process: "p", Epoch: "e", First: 1, Last: 1}.Fields()
	if err := c.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: values}).Err(); err != nil {
		t.Fatal(err)
	}
	k := open(t, keyspace.Options{Redis: at(strings.Replace(c.URL(), "://", "://operator:secret@", 1)), Timeout: 5 * time.Second})
	n := 0
	if err := k.Contents.Reports(t.Context(), time.Time{}, func(protocol.Report, time.Time) { n++ }); err != nil || n != 1 {
		t.Errorf("%d reports, %v", n, err)
	}
	if _, err := k.Contents.Present(t.Context(), protocol.ReportKey); err != nil {
		t.Error(err)
	}
}

// No pattern takes unstale's own names: not the reports, nor an index set that is being cleared.
func TestSweepsLeaveOwnNames(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL), SweepShare: 1})
	if err := r.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: []string{"a", "b"}}).Err(); err != nil {
		t.Fatal(err)
	}
	own := []string{protocol.ReportKey}
	for _, prefix := range append([]string{protocol.PopularPrefix}, keyspace.OwnPrefixes...) {
		own = append(own, prefix+"x")
	}
	for _, key := range append(own[1:], "shop:key") {
		if err := r.Client.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	result, err := k.Sweeper.Sweep(t.Context(), []string{"*", "unstale:*", protocol.ReportKey}, nil)
	if n := r.Client.Exists(t.Context(), own...).Val(); err != nil || n != int64(len(own)) || r.Client.DBSize(t.Context()).Val() != n {
		t.Errorf("%d of %q are left; %+v, %v", n, own, result, err)
	}
}
