package keyspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// A walk returns the details that Redis has for each key, with an account that may read nothing
// else. It stops at its limit and when it is told to, and reports the details that it could not
// get.
func TestWalk(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	for i := range 500 {
		if err := admin.Set(t.Context(), fmt.Sprint("shop:product:", i), "value", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(admin.Set(t.Context(), "shop:large", make([]byte, 1<<20), 0).Err(), admin.SAdd(t.Context(), "tag:a", "x").Err()); err != nil {
		t.Fatal(err)
	}
	idle(t, admin, "shop:product:7", time.Hour)
	setUser(t, admin, "review", "on", ">secret", "-@all", "+ping", "+select", "+info", "+scan", "+dbsize", "+pttl", "+memory|usage", "+type", "+object|freq", "+object|idletime", "%R~*")
	k := open(t, keyspace.Options{Redis: at("redis://review:secret@" + server.Addr() + "/0"), SweepShare: 1})
	walk := func(ctx context.Context, limit int64) (map[string]keyspace.KeyInfo, keyspace.Walked, error) {
		found := map[string]keyspace.KeyInfo{}
		w, err := k.Contents.Walk(ctx, limit, func(some []keyspace.KeyInfo) {
			for _, i := range some {
				found[i.Name] = i
			}
		})
		return found, w, err
	}
	found, w, err := walk(t.Context(), 1_000_000)
	if err != nil || len(found) != 502 || w.Total != 502 || w.Seen < 502 || !w.All || !w.NoLFU || len(w.Denied) > 0 {
		t.Fatalf("%d keys, %+v, %v", len(found), w, err)
	}
	if i := found["shop:large"]; i.TTL != keyspace.NoTTL || i.Bytes < 1<<20 || i.Type != "string" || i.Freq >= 0 {
		t.Errorf("%+v", i)
	}
	if i := found["shop:product:7"]; i.TTL <= 0 || i.TTL > time.Hour || i.Bytes <= 0 || i.Idle >= 0 { // it cannot be unused for longer than the server runs
		t.Errorf("%+v", i)
	}
	if i := found["tag:a"]; i.Type != "set" || i.Idle < 0 {
		t.Errorf("%+v", i)
	}
	if _, w, err := walk(t.Context(), 100); err != nil || w.All || w.Seen < 100 || w.Seen > 400 {
		t.Errorf("limited: %+v, %v", w, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err = k.Contents.Walk(ctx, 1_000_000, func([]keyspace.KeyInfo) { cancel() })
	if !errors.Is(err, context.Canceled) || w.Seen == 0 || w.All {
		t.Errorf("cancelled: %+v, %v", w, err)
	}
	setUser(t, admin, "review", "-info")
	found, w, err = walk(t.Context(), 1_000_000)
	if err != nil || !slices.Equal(w.Denied, []string{"+info"}) || !slices.Equal(w.Untold, []string{"+object|idletime"}) || found["tag:a"].Idle >= 0 {
		t.Errorf("without +info: %+v, %+v, %v", w, found["tag:a"], err)
	}
	setUser(t, admin, "review", "+info", "-pttl", "-memory|usage")
	if err := admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err(); err != nil {
		t.Fatal(err)
	}
	found, w, err = walk(t.Context(), 1_000_000)
	if err != nil || !slices.Equal(w.Denied, []string{"+pttl", "+memory|usage"}) || w.NoLFU || found["tag:a"].Freq < 0 || found["tag:a"].Bytes >= 0 || found["tag:a"].TTL >= keyspace.NoTTL || found["shop:product:7"].Idle >= 0 {
		t.Errorf("%+v, %+v, %v", w, found["tag:a"], err)
	}
}

// idle makes a key one that was not used for a while.
func idle(t *testing.T, admin *redis.Client, name string, since time.Duration) {
	t.Helper()
	dump, err := admin.Dump(t.Context(), name).Result()
	if err == nil {
		err = admin.Do(t.Context(), "restore", name, time.Hour.Milliseconds(), dump, "replace", "idletime", int64(since.Seconds())).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}
