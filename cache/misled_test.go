package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// publishes sends a heartbeat each time that the returned function is called.
func (s *twoServers) publishes(source, channel string, lease time.Duration, alive bool) func() {
	seq := uint64(0)
	return func() {
		s.Helper()
		seq++
		beat := protocol.Message{Epoch: "e-" + source, Seq: seq, At: time.Now(), Beat: &protocol.Beat{Source: source, Lease: lease.Milliseconds(), First: seq == 1, Alive: alive}}
		testenv.Must(s, s.clients[0].Publish(s.Context(), channel, beat.Append(nil, protocol.FormatEvent)).Err())
	}
}

// Workers that report that they write, but not here, use another database.
func TestOtherDatabase(t *testing.T) {
	t.Parallel()
	for name, memory := range map[string]cache.Memory{
		"with memory":                     {Size: 10, Sources: []string{"shop"}},
		"without memory":                  {},
		"without memory, source is known": {Sources: []string{"shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServers(t)
			s.wrote(0, works, time.Minute)
			reader := redis.NewClient(&redis.Options{Addr: s.clients[0].Options().Addr, DB: 1, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = reader.Close() })
			logged := &lines{}
			memory.Period, memory.Channel = 100*time.Millisecond, "c:"+t.Name()
			c := newCache(t, cache.Config{Redis: reader, Logger: logged.logger(), Memory: memory})
			db := &database{value: "old"}
			publish := s.publishes("shop", memory.Channel, time.Minute, true)
			n := 0
			reads := func(what string, healthy func(error) bool) {
				testenv.Eventually(t, what, func() bool {
					publish()
					n++
					wantFetched(t, "meanwhile", c, fmt.Sprint(n), db.read, "old")
					return healthy(c.Healthy())
				})
			}
			reads("the report", func(err error) bool { // the log has it at the next read
				return err != nil && strings.Contains(err.Error(), "another database") && len(logged.with("workers write elsewhere")) > 0
			})
			if n := len(logged.with("workers write elsewhere")); n != 1 {
				t.Errorf("logged %d times", n)
			}
			if c.Statistics().Elsewhere == 0 {
				t.Error("no answer is counted")
			}
			at := must1(t, reader.Time(t.Context()).Result)
			testenv.Must(t, reader.HSet(t.Context(), protocol.AliveKey(""), "shop", protocol.Alive{Time: at.Add(time.Minute).UnixMicro(), Lease: 60_000}.String()).Err())
			reads("the end", func(err error) bool { return err == nil || !strings.Contains(err.Error(), "another database") })
		})
	}
}

// A reader without memory that has message keys counts no heartbeat that no worker signed.
func TestOtherDatabaseIsForged(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	channel := "c:" + t.Name()
	c := newCache(t, cache.Config{Redis: s.client(), Memory: cache.Memory{Channel: channel, MessageKeys: []protocol.MessageKey{newKey}}})
	forge := s.publishes("forged", channel, time.Second, true)
	db := &database{value: "old"}
	seq := uint64(0)
	testenv.Eventually(t, "the report", func() bool {
		forge()
		seq++
		beat := protocol.Message{Epoch: "e", Seq: seq, Sent: uint64(time.Now().UnixMicro()), Beat: &protocol.Beat{Source: "shop", Lease: 60_000, Alive: true}}
		testenv.Must(t, s.clients[0].Publish(t.Context(), channel, beat.AppendSigned(nil, channel, newKey)).Err())
		wantFetched(t, "meanwhile", c, fmt.Sprint(seq), db.read, "old")
		err := c.Healthy()
		if err != nil && !strings.Contains(err.Error(), `"shop"`) {
			t.Fatalf("healthy: %v", err)
		}
		return err != nil
	})
}

// If the sources of a reader differ from the workers' sources, the error names both.
func TestOtherSource(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Minute)
	logged := &lines{}
	c := newCache(t, cache.Config{Redis: s.client(), Logger: logged.logger(), Memory: cache.Memory{Sources: []string{"shopp"}}})
	db := &database{value: "old"}
	n := 0
	testenv.Eventually(t, "the report", func() bool {
		n++
		wantFetched(t, "meanwhile", c, fmt.Sprint(n), db.read, "old")
		err := c.Healthy()
		return err != nil && strings.Contains(err.Error(), `found ["shop"], expected ["shopp"]`)
	})
	if n := len(logged.with("workers write elsewhere")); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// wantLease checks that the lease of a reader is bounded.
func wantLease(t *testing.T, c *cache.Cache, client *redis.Client, key string, most time.Duration) {
	t.Helper()
	db := &database{value: "old"}
	p := db.paused()
	answers := fetchBeside(t, c, key, p.load, nil)
	<-p.read
	name, _ := protocol.LeaseKey(key)
	if life := must1(t, client.PTTL(t.Context(), name).Result); life <= most/2 || life > most {
		t.Errorf("a lease of %v, wanted nearly %v", life, most)
	}
	close(p.release)
	wantAnswer(t, "the load", answers, "old")
}

// The shortest lease of the reader's outboxes counts, whichever of them wrote last, and no other
// outbox's.
func TestLeaseOfTwoMaps(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wroteAs("shop", 0, works, 20*time.Second)
	s.wroteAs("stock", 0, 2*works, time.Minute)
	s.wroteAs("foreign", 0, 2*works, time.Second)
	logged := &lines{}
	c := newCache(t, cache.Config{
		Redis: s.client(), Lease: time.Minute, Logger: logged.logger(), Memory: cache.Memory{Sources: []string{"shop", "stock"}},
	})
	db := &database{value: "old"}
	for i := range 4 {
		wantFetched(t, "a read", c, "k", db.read, "old")
		wantLease(t, c, s.clients[0], fmt.Sprint(i), 20*time.Second)
		s.wroteAs([]string{"shop", "stock"}[i%2], 0, time.Duration(i+3)*works, []time.Duration{20 * time.Second, time.Minute}[i%2])
	}
	if n := len(logged.with("lease is longer")); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// Without fields, the shortest lease that heartbeats of the reader's outboxes name counts: here its
// account may not read fields.
func TestLeaseOfHeartbeats(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	testenv.Must(t, s.clients[0].Do(t.Context(), "acl", "setuser", "reader", "on", ">secret", "~*", "&*", "+@all", "-hget", "-hgetall").Err())
	client := redis.NewClient(&redis.Options{Addr: s.clients[0].Options().Addr, Username: "reader", Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	channel := "c:" + t.Name()
	logged := &lines{}
	c := newCache(t, cache.Config{
		Redis: client, Lease: time.Minute, Logger: logged.logger(),
		Memory: cache.Memory{Size: 10, Channel: channel, Sources: []string{"shop", "stock"}, Period: period},
	})
	db := &database{value: "old"}
	wantFetched(t, "the first one", c, "k", db.read, "old") // is denied
	beats := []func(){
		s.publishes("foreign", channel, time.Second, true), s.publishes("shop", channel, 20*time.Second, true), s.publishes("stock", channel, time.Minute, true),
	}
	testenv.Eventually(t, "the report", func() bool {
		for _, beat := range beats {
			beat()
		}
		err := c.Healthy()
		return err != nil && strings.Contains(err.Error(), "map's lease is 20s")
	})
	for i := range 3 {
		beats[i]()
		wantLease(t, c, s.clients[0], fmt.Sprint(i), 20*time.Second)
	}
	if n := len(logged.with("lease is longer")); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
