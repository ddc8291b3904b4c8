package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// An account that may not subscribe loses only hints: one warning names the missing rule, the gauge
// is 0, /readyz stays 200 and polling finds rows. With the permission, hints arrive without a
// restart, and its removal is logged again.
func TestRefusedWakeUpsAreNamed(t *testing.T) {
	t.Parallel()
	const channel = "cache:outbox:wake"
	for rule, refusal := range map[string]string{"+subscribe": "-subscribe", "&" + channel: "resetchannels"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, plainMap)
			server := w.onOwnRedis()
			setUser := func(rules ...string) {
				t.Helper()
				args := []any{"acl", "setuser", "worker"}
				for _, r := range rules {
					args = append(args, r)
				}
				if err := w.redis.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			setUser("on", ">secret", "~*", "+@all", "resetchannels", "&"+channel, refusal, "&"+w.channel)
			w.url = "redis://worker:secret@" + server.Addr()
			r := w.worker(worker.Config{WakeChannel: channel})
			r.start(t)
			const refused, heard = "wake-ups are not heard", "wake-ups are heard again"
			testenv.Eventually(t, "the warning", func() bool { return r.log.count(refused) == 1 })
			if r.log.count("grant the redis user "+rule) != 1 || r.log.count(`state="redis noperm"`) != 1 {
				t.Errorf("the warning does not name %s", rule)
			}
			w.enqueue(things(1)...)
			testenv.Eventually(t, "polling finds the row", func() bool { return w.count("cache_outbox") == 0 })
			// after the batch
			testenv.Eventually(t, "/readyz is well", func() bool { return r.Health().Ready() == nil })
			if got := metric(t, r, "unstale_wake_subscribed"); got != 0 {
				t.Errorf("unstale_wake_subscribed is %v without the right", got)
			}

			setUser("+subscribe", "&"+channel)
			testenv.Eventually(t, "a hint is heard", func() bool {
				w.redis.Publish(t.Context(), channel, "")
				return metric(t, r, "unstale_wakes_total") > 0
			})
			if r.log.count(heard) != 1 || metric(t, r, "unstale_wake_subscribed") != 1 {
				t.Errorf("the log or the gauge does not tell that hints are heard")
			}

			setUser(refusal, "&"+w.channel)
			if err := w.redis.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "the second warning", func() bool { return r.log.count(refused) == 2 })
			if got := metric(t, r, "unstale_wake_subscribed"); got != 0 {
				t.Errorf("unstale_wake_subscribed is %v when the right is gone", got)
			}
		})
	}
}

// A lost subscription is renewed immediately, without a log record.
func TestLostWakeUpsAreRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnRedis()
	r := w.worker(worker.Config{IdleInterval: time.Hour, WakeChannel: "wake"})
	r.start(t)
	for range 3 {
		before := metric(t, r, "unstale_wakes_total")
		testenv.Eventually(t, "a hint is heard", func() bool {
			w.redis.Publish(t.Context(), "wake", "")
			return metric(t, r, "unstale_wakes_total") > before
		})
		if err := w.redis.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(r.log.String(), "wake-ups") {
		t.Error("the log tells of what was over at once")
	}
}
