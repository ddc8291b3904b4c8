package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/unstale/unstale/lab/demo"
)

// If the map lacks a key, the demo names the key that stayed, the missing message, and the stale
// value.
func TestNamesWhatStayed(t *testing.T) {
	t.Parallel()
	_, cfg := givenServers(t)
	cfg.MapFile = changedMap(t, "    keys: [\"{app}:{env}:home\"]\n", "")
	r := play(t, start(t, cfg))
	checkFaults(t, r,
		"category 9 is renamed: home is still in Redis, but must be gone",
		"category 9 is renamed: the subscriber received no message for home",
		"at the end, the cached value of home differs from MySQL",
	)
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{" home 1 1 STAYED NONE ", " WRONG: category 9 is renamed: " + r.Prefix + "home is still in Redis"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
}

// The map makes too much stale: another change's key and pattern, one of them for the change that
// rolled back.
func TestNamesWhatShouldHaveStayed(t *testing.T) {
	t.Parallel()
	_, cfg := givenServers(t)
	cfg.MapFile = changedMap(t, "    keys: [\"{app}:{env}:home\"]\n    patterns: [\"{app}:{env}:category:{id}:list:*\"]",
		"    keys: [\"{app}:{env}:home\", \"{app}:{env}:product:45\"]\n    patterns: [\"{app}:{env}:category:{id}:list:*\", \"{app}:{env}:coupon:SUMMER1*\"]")
	checkFaults(t, play(t, start(t, cfg)),
		"product 45 changes price: ROLLBACK: the subscriber received product:45, which no change so far makes stale",
		"category 9 is renamed: the subscriber received coupon:SUMMER1*, which no change so far makes stale",
		"product 45 changes price: ROLLBACK: product:45 is gone, but must stay",
		"category 9 is renamed: coupon:SUMMER10 is gone, but must stay",
		"category 9 is renamed: coupon:SUMMER100 is gone, but must stay",
	)
}

// If the worker dead-letters a row, its reason comes first.
func TestNamesWhatTheWorkerDeadLettered(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	d := start(t, cfg)
	if _, err := g.mysql.DB.Exec("INSERT INTO " + d.Database() + ".cache_outbox (entity, entity_id) VALUES ('planet', '9')"); err != nil {
		t.Fatal(err)
	}
	r := play(t, d)
	if len(r.Faults) != 1 || !strings.HasPrefix(r.Faults[0], "product 42 changes price: the worker dead-lettered the row planet 9: unknown_entity: ") {
		t.Errorf("faults: %q", r.Faults)
	}
}

// Another client deletes a key that no change makes stale.
func TestNamesANeighbourThatWasDeleted(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	d := start(t, cfg)
	found, err := g.redis.Client.Keys(t.Context(), "zahraah_demo_*:coupon:WELCOME").Result()
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	stop := make(chan struct{})
	var deleting sync.WaitGroup
	// Each change fills the key again, so the deletes continue until the demo checks it.
	deleting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				g.redis.Client.Del(t.Context(), found[0])
			}
		}
	})
	r := play(t, d)
	close(stop)
	deleting.Wait()
	if len(r.Faults) == 0 || r.OK {
		t.Fatal("nobody noticed")
	}
	for _, f := range r.Faults {
		if !strings.HasSuffix(f, ": "+found[0]+" is gone, but must stay") {
			t.Errorf("fault: %s", f)
		}
	}
}

// Another client changes a cached value, and the demo finds it at the end.
func TestNamesAStaleValue(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	d := start(t, cfg)
	found, err := g.redis.Client.Keys(t.Context(), "zahraah_demo_*:coupon:WELCOME").Result()
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	var entry map[string]json.RawMessage
	text, err := g.redis.Client.Get(t.Context(), found[0]).Bytes()
	if err := errors.Join(err, json.Unmarshal(text, &entry)); err != nil {
		t.Fatal(err)
	}
	entry["v"] = json.RawMessage(`"another"`)
	text, err = json.Marshal(entry)
	if err := errors.Join(err, g.redis.Client.SetArgs(t.Context(), found[0], text, keepTTL).Err()); err != nil {
		t.Fatal(err)
	}
	checkFaults(t, play(t, d), "at the end, the cached value of coupon:WELCOME differs from MySQL")
}

// If Redis goes away, Play soon returns an error, and a report of the changes so far.
func TestEndsWhenRedisIsGone(t *testing.T) {
	t.Parallel()
	d := start(t, demo.Config{Flavor: flavor(), MapFile: shippedMap})
	if err := d.PrivateRedis().Kill(); err != nil {
		t.Fatal(err)
	}
	r, err := d.Play(t.Context())
	if err == nil || r.OK {
		t.Errorf("ok is %v, error %v", r.OK, err)
	}
}

// If the context ends before the first change, Play returns an error and a report, and Close still
// removes everything.
func TestEndsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	d := start(t, cfg)
	r, err := d.Play(cancelled(t))
	if err == nil || r.OK || len(r.Readers) != 0 || len(r.Changes) != 0 {
		t.Errorf("error %v, report %+v", err, r)
	}
	if err := r.WriteTable(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := g.redis.Client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
