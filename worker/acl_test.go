package worker_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

const aclMap = `version: 1
publish: {channel: "cache:invalidate"}
entities:
  thing:
    keys: ["shop:thing:{id}"]
    patterns: ["shop:list:{id}:*"]
    sets: ["tag:{id}"]
    tags: ["thing-{id}"]
    hold: 1s
reads:
  thing: {key: "shop:thing:{thing_id}", tags: ["thing-{thing_id}"], ttl: 5m}
  list: {key: "shop:list:{thing_id}:p{page}", ttl: 5m}
  member: {key: "shop:member:{thing_id}:{part}", sets: ["tag:{thing_id}"], ttl: 5m}
`

// asWorker makes a world whose Redis knows the account worker, in database 3, and returns the map.
func asWorker(t *testing.T) (*world, *invalidation.Map) {
	t.Helper()
	w := newWorld(t, aclMap)
	server := w.onOwnRedis()
	_ = w.redis.Close()
	w.redis = redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3}) // closed with the world
	w.url = "redis://worker:secret@" + server.Addr() + "/3"
	src, err := os.ReadFile(w.mapFile)
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse(w.mapFile, src, mapEnv)
	if err != nil {
		t.Fatal(err)
	}
	return w, m
}

// A worker with the rules of `unstale acl` does all of its work, and Redis refuses nothing: it
// listens for wake-ups, unlinks keys, tag versions, members of sets and what patterns match,
// publishes, and heals.
func TestWorkerWithItsRules(t *testing.T) {
	t.Parallel()
	w, m := asWorker(t)
	const wake = "wake"
	testenv.SetUser(t, w.redis, "worker", append([]string{"on", ">secret", "-@all"}, doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: m, Wake: wake, Shadow: true})...)...)
	w.set("shop:thing:1", "shop:list:1:p1", "shop:member:1:a", "stamp:thing-1", "shop:thing:2")
	if err := w.redis.SAdd(t.Context(), "tag:1", "shop:member:1:a").Err(); err != nil {
		t.Fatal(err)
	}
	ear := w.listen()
	r := w.worker(worker.Config{WakeChannel: wake})
	r.start(t)
	w.enqueue(things(1)...)
	gone := func() bool { return strings.Join(w.left(), " ") == "shop:thing:2" }
	testenv.Eventually(t, "the keys go", gone)
	ear.heard(1)
	// Redis goes back in time
	w.set("shop:thing:1")
	beacons, err := w.redis.Keys(t.Context(), "unstale:beacon:*").Result()
	if err != nil || len(beacons) == 0 {
		t.Fatal(beacons, err)
	}
	if err := w.redis.Del(t.Context(), beacons...).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the key goes again", gone)
	testenv.Eventually(t, "a wake-up is listened for", func() bool { return w.redis.PubSubNumSub(t.Context(), wake).Val()[wake] == 1 })
	if refused := testenv.Denied(t, w.redis, "worker"); len(refused) > 0 {
		t.Errorf("Redis refused %q", refused)
	}
	if r.log.count("level=ERROR") > 0 || r.log.count("NOPERM") > 0 {
		t.Error("the log has errors")
	}
}

// doctor finds nothing missing with the rules of `unstale acl`. Without one of them, it names that
// rule.
func TestEachRuleOfWorker(t *testing.T) {
	t.Parallel()
	w, m := asWorker(t)
	for _, sharded := range []bool{false, true} {
		o := doctor.ACLOptions{Map: m, Wake: "wake", Wait: true, Sharded: sharded}
		testenv.EachRule(t, w.redis, "worker", doctor.ACLRules(doctor.Worker, o), func(missing string) error {
			at, err := redisurl.Parse(w.url, false)
			if err != nil {
				t.Fatal(err)
			}
			k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: 5 * time.Second, BeaconTTL: time.Hour, ShardedPubSub: sharded})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			inputs := &doctor.Inputs{Redis: k, RedisUser: "worker", Map: m, Wake: o.Wake, Wait: true, StateDB: -1}
			found := doctor.Examine(t.Context(), inputs, "reach", "redis-rights")
			for _, f := range found {
				switch words := strings.Fields(strings.ReplaceAll(f.Evidence+" "+f.Cure, ";", " ")); {
				case !f.Severity.AtLeast(doctor.Warning):
				case missing == "":
					return fmt.Errorf("doctor: %+v", f)
				case slices.Contains(words, missing):
					return nil
				}
			}
			if missing != "" {
				t.Errorf("without %s doctor finds %+v", missing, found)
			}
			return nil
		})
	}
}

// A worker whose user of Redis may not look at entries processes rows, and its status says so.
func TestStatusTellsThatSpotChecksAreRefused(t *testing.T) {
	t.Parallel()
	w, m := asWorker(t)
	testenv.SetUser(t, w.redis, "worker", append(append([]string{"on", ">secret", "-@all"}, doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: m})...), "-getrange")...)
	w.worker(worker.Config{}).start(t)
	w.set("shop:thing:1")
	w.enqueue(things(1)...)
	testenv.Eventually(t, "the key goes", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "the note", func() bool {
		return w.count("cache_outbox_workers WHERE state = 'working' AND error = '"+store.NotChecked+"the user of Redis may not look at entries'") == 1
	})
}
