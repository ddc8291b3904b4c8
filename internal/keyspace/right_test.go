package keyspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// Each right that is taken away is named by the rule that gives it back, and nothing is left of the
// trial or published.
func TestTryRights(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	rules := []string{
		"+ping", "+time", "+scan", "+dbsize", "+wait", "+unlink", "+get", "+set", "+pexpire", "+getrange", "+evalsha", "+eval", "+scard", "+renamenx", "+sscan", "+srem",
		"+hset", "+hdel", "+hgetall", "~unstale:alive*", "~unstale:workers", "~unstale:sources",
		"+subscribe", "+publish", "~shop:*", "~tag:*", "~lock:fill:*", "~lock:hold:*", "~unstale:set:*", "~unstale:beacon:*", "&messages", "&hints",
	}
	heard := admin.Subscribe(t.Context(), "messages", "hints")
	defer heard.Close()
	for range 2 {
		if _, err := heard.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	product := keyspace.TrialKey(`shop:\[product]:*`, "made-up")
	if product.Name != "shop:[product]:made-up" {
		t.Fatal(product)
	}
	product.Pattern = "shop:*"
	trial := keyspace.Trial{
		Keys: []keyspace.TrialName{product}, Held: []keyspace.TrialName{product}, Sets: []keyspace.TrialName{keyspace.TrialKey("tag:*", "made-up")},
		Scans: true, Channel: "messages", Wake: "hints", Wait: true,
	}
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr() + "/0"), BeaconTTL: time.Hour})
	for _, missing := range append([]string{""}, rules...) {
		setUser(t, admin, "worker", "reset", "on", ">secret", "-@all")
		setUser(t, admin, append([]string{"worker"}, slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return rule == missing })...)...)
		rights, err := k.Account.TryRights(t.Context(), trial)
		if err != nil {
			t.Fatal(err)
		}
		var lacks []string
		for _, r := range rights {
			if r.Rule != "" && !slices.Contains(lacks, r.Rule) {
				lacks = append(lacks, r.Rule)
			}
			if r.Err != nil && missing != "+subscribe" {
				t.Errorf("without %s: %+v", missing, r)
			}
		}
		if missing == "" && (len(lacks) > 0 || len(rights) < 15) || missing != "" && (len(lacks) == 0 || !strings.Contains(strings.Join(lacks, " "), missing)) {
			t.Errorf("without %s it names %q", missing, lacks)
		}
	}
	if err := admin.Publish(t.Context(), "messages", "the first").Err(); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.ReceiveMessage(t.Context()); err != nil || m.Payload != "the first" {
		t.Errorf("a trial was published: %v, %v", m, err)
	}
	testenv.Eventually(t, "the trial's names to go", func() bool { return admin.DBSize(t.Context()).Val() == 0 })
}
