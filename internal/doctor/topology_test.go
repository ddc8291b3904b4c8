package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

// topologyArgs are options of a healthy Redis.
var topologyArgs = []string{"--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru", "--slowlog-log-slower-than", "10000000"}

const auditRules = "reset on >secret -@all +ping +select +info +config|get +slowlog|get +acl|dryrun +acl|getuser +acl|users +command +get %R~unstale:beacon:* " + doctor.ClusterRules

// giveAccounts creates the accounts of a worker, an audit and a review on a node.
func giveAccounts(t *testing.T, node *redis.Client) {
	t.Helper()
	for user, rules := range map[string]string{
		worker: "reset " + workerRules(t) + " " + doctor.ClusterRules, audit: auditRules,
		"default": noPublish,
		"review":  "reset on >secret -@all +ping +select +info +scan +dbsize +pttl +memory|usage +type +object|freq +object|idletime %R~* " + doctor.ClusterRules,
	} {
		setUser(t, node, user+" "+rules)
	}
}

func setUser(t *testing.T, node *redis.Client, words string) {
	t.Helper()
	args := []any{"acl", "setuser"}
	for _, word := range strings.Fields(words) {
		args = append(args, word)
	}
	if err := node.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", words, err)
	}
}

func openKeys(t *testing.T, url string) *keyspace.Keyspace {
	t.Helper()
	options, err := redisurl.Parse(url, false)
	if err != nil {
		t.Fatal(err)
	}
	// A paused node that is asked for the slots must not use up doctor's whole time limit.
	k, err := keyspace.Open(keyspace.Options{Redis: options, Timeout: 2 * time.Second, SweepShare: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// topologyMap has keys and patterns in all slots.
func topologyMap(t *testing.T) *invalidation.Map {
	t.Helper()
	m, err := invalidation.Parse("map.yaml", []byte(strings.Replace(everything, "    params: [category_id]\n", "    params: [category_id]\n    repeat: [1s]\n", 1)), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// behind is the number of megabytes that make a replica count as behind.
const behind = 12

// fillBehind writes that many megabytes.
func fillBehind(t *testing.T, to redis.UniversalClient, name func(i int) string) {
	t.Helper()
	for i := range behind {
		if err := to.Set(t.Context(), name(i), strings.Repeat("x", 1<<20), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// In Redis Cluster each check covers every master, and permissions are checked on every node. An
// unavailable node is reported, and hides nothing of the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	// No replica takes over automatically, in case a busy machine makes a master look unavailable.
	c := testenv.OwnCluster(t, 3, true, append([]string{"--cluster-node-timeout", "5000"}, topologyArgs...)...)
	for _, node := range c.Direct {
		giveAccounts(t, node)
		if err := node.ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	// a replica without data is not listed
	fillBehind(t, c.Client, func(i int) string { return fmt.Sprint("zahraah:first:", i) })
	testenv.Eventually(t, "all nodes to list the replicas", func() bool {
		for _, node := range c.Direct {
			//lint:ignore SA1019 the client goes by it, and it lists no replica that has nothing yet; CLUSTER SHARDS does
			for _, slots := range node.ClusterSlots(t.Context()).Val() {
				if len(slots.Nodes) < 2 {
					return false
				}
			}
		}
		return true
	})
	url := func(user string) string {
		return strings.Replace(c.URL(), "redis+cluster://", "redis+cluster://"+user+":secret@", 1)
	}
	inputs := doctor.Inputs{StateDB: -1, Wake: "cache:outbox:wake", RedisUser: worker, Redis: openKeys(t, url(worker)), AuditRedis: openKeys(t, url(audit)).Nodes, Map: topologyMap(t)}
	examine := func(checks ...string) []doctor.Finding { return doctor.Examine(t.Context(), &inputs, checks...) }
	well := examine()
	for _, f := range well {
		if f.Severity.AtLeast(doctor.Warning) {
			t.Errorf("while all is well: %+v", f)
		}
	}
	for _, check := range []string{"redis-memory", "redis-persistence", "redis-slowlog", "redis-replication", "redis-state", "clocks"} {
		for _, master := range c.Nodes[:3] {
			if !strings.Contains(fmt.Sprintf("%+v", examine(check)), master.Addr()) {
				t.Errorf("%s does not look at %s", check, master.Addr())
			}
		}
	}
	for _, node := range c.Direct[:3] {
		setUser(t, node, "unstale_state reset on >secret -@all +ping +select +info +scan +pubsub|numsub "+doctor.ClusterRules)
	}
	inputs.State = openKeys(t, url("unstale_state")).Nodes
	for _, master := range c.Nodes[:3] {
		if f := find(examine("state"), "state", "is the cache's\n"+master.Addr()); f == nil || f.Severity != doctor.Warning {
			t.Errorf("state on the cache's %s: %+v", master.Addr(), examine("state"))
		}
	}

	// A master and a replica each lack one rule.
	setUser(t, c.Direct[1], worker+" -unlink")
	setUser(t, c.Direct[5], worker+" -srem")
	lacks := examine("redis-rights")
	for rule, node := range map[string]int{"+unlink": 1, "+srem": 5} {
		f := find(lacks, "redis-rights", rule)
		if f == nil || f.Severity != doctor.Critical || !strings.Contains(f.Cure, c.Nodes[node].Addr()) || strings.Contains(f.Cure, c.Nodes[0].Addr()) {
			t.Fatalf("%s is not missing at %s alone: %+v", rule, c.Nodes[node].Addr(), lacks)
		}
		command, _, _ := strings.Cut(f.Cure, "\n")
		setUser(t, c.Direct[node], strings.TrimPrefix(command, "ACL SETUSER "))
	}
	if err := c.Direct[4].Do(t.Context(), "acl", "deluser", worker).Err(); err != nil {
		t.Fatal(err)
	}
	if f := find(examine("redis-rights"), "redis-rights", "not at each node"); f == nil || f.Severity != doctor.Critical || !strings.Contains(f.Cure, c.Nodes[4].Addr()) {
		t.Errorf("an account that is missing at a replica: %+v", f)
	}
	giveAccounts(t, c.Direct[4])

	// A replica is first behind, and then unavailable.
	if err := c.Nodes[5].Pause(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := 0; len(names) < behind; i++ {
		if name := fmt.Sprint("zahraah:product:", i); int(protocol.Slot(name))*3/16384 == 2 {
			names = append(names, name)
		}
	}
	fillBehind(t, c.Client, func(i int) string { return names[i] })
	lags := examine("redis-replication")
	if f := find(lags, "redis-replication", "bytes behind"); f == nil || f.Severity != doctor.Warning || !strings.Contains(f.Evidence, fmt.Sprint(c.Nodes[5].Port())) {
		t.Errorf("a lagging replica: %+v", lags)
	}
	if err := errors.Join(c.Nodes[5].Resume(), c.Nodes[3].Kill()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the replica to be missed", func() bool {
		f := find(examine("redis-replication"), "redis-replication", "a replica is away")
		return f != nil && f.Severity == doctor.Warning && strings.Contains(f.Evidence, c.Nodes[3].Addr())
	})

	// The first master is unavailable, and has no replica.
	if err := c.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	away := examine()
	if f := find(away, "reach", c.Nodes[0].Addr()); f == nil || f.Severity != doctor.Critical {
		t.Errorf("a master that is away: %+v", away)
	}
	for _, check := range []string{"redis-memory", "redis-slowlog", "redis-state", "redis-rights", "state"} {
		if f := find(away, check, c.Nodes[0].Addr()); f == nil || f.Severity != doctor.Unknown {
			t.Errorf("%s of a master that is away: %+v", check, f)
		}
	}
	for _, f := range away {
		if f.Check == "redis-memory" && f.Severity == doctor.OK && strings.Contains(f.Title, c.Nodes[2].Addr()) {
			testWalkWithoutOne(t, openKeys(t, url("review")), c.Nodes[0].Addr(), len(names))
			return
		}
	}
	t.Errorf("it does not look at the masters that are there: %+v", away)
}

// testWalkWithoutOne: a review reports the keys that it sees, and the master that it could not see.
func testWalkWithoutOne(t *testing.T, k *keyspace.Keyspace, away string, keys int) {
	t.Helper()
	r := doctor.NewReview(topologyMap(t), nil)
	w, err := k.Contents.Walk(context.WithoutCancel(t.Context()), 1_000_000, r.Note)
	report := r.Report(w, err)
	if err == nil || w.All || w.Seen < int64(keys) || w.Total < int64(keys) {
		t.Errorf("%+v, %v", w, err)
	}
	if f := find(report.Findings, "seen", away); f == nil || f.Severity != doctor.Unknown {
		t.Errorf("%+v", report.Findings)
	}
	if len(report.Biggest) == 0 || report.Biggest[0].Entity != "product" || report.Biggest[0].Keys < int64(keys) {
		t.Errorf("%+v", report.Biggest)
	}
}

// Behind Sentinel, the current master is examined.
func TestSentinel(t *testing.T) {
	t.Parallel()
	s := testenv.OwnSentinel(t, topologyArgs...)
	master, replica := redis.NewClient(&redis.Options{Addr: s.Master.Addr()}), redis.NewClient(&redis.Options{Addr: s.Replica.Addr()})
	defer master.Close()
	defer replica.Close()
	giveAccounts(t, master)
	inputs := doctor.Inputs{
		StateDB: -1, Wake: "cache:outbox:wake", RedisUser: worker, Map: topologyMap(t),
		Redis: openKeys(t, s.URL(worker+":secret@", 0)), AuditRedis: openKeys(t, s.URL(audit+":secret@", 0)).Nodes,
	}
	examine := func(checks ...string) []doctor.Finding { return doctor.Examine(t.Context(), &inputs, checks...) }
	for _, f := range examine() {
		if f.Severity.AtLeast(doctor.Warning) {
			t.Errorf("while all is well: %+v", f)
		}
		if f.Check == "redis-replication" && !strings.Contains(f.Title, "1 replica, none behind") {
			t.Errorf("%+v", f)
		}
	}
	if err := s.Replica.Pause(); err != nil {
		t.Fatal(err)
	}
	fillBehind(t, master, func(i int) string { return fmt.Sprint("zahraah:product:", i) })
	if f := find(examine("redis-replication"), "redis-replication", "bytes behind"); f == nil || f.Severity != doctor.Warning {
		t.Errorf("a lagging replica: %+v", f)
	}
	if err := s.Replica.Resume(); err != nil {
		t.Fatal(err)
	}
	w, err := openKeys(t, s.URL("review:secret@", 0)).Contents.Walk(t.Context(), 1000, func([]keyspace.KeyInfo) {})
	if err != nil || !w.All || w.Seen < behind {
		t.Errorf("%+v, %v", w, err)
	}
	testenv.Eventually(t, "the replica to have all", func() bool { return replica.DBSize(t.Context()).Val() == master.DBSize(t.Context()).Val() })

	// The accounts were created on one of them only.
	s.FailOver(t)
	testenv.Eventually(t, "the successor to refuse", func() bool {
		f := find(examine("reach", "redis-memory"), "reach", "WRONGPASS")
		return f != nil && f.Severity == doctor.Critical
	})
	giveAccounts(t, replica)
	testenv.Eventually(t, "the successor to be looked at", func() bool {
		all := examine("reach", "redis-rights", "redis-memory")
		return doctor.Worst(all) == doctor.OK && doctor.Count(all, doctor.OK) == 3
	})
}
