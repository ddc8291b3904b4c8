package keyspace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// The error names the missing rule of the account.
func TestMissingRuleIsNamed(t *testing.T) {
	t.Parallel()
	for rule, call := range map[string]func(t *testing.T, k *keyspace.Keyspace) error{
		"+unlink":      unlinkOne("shop:1", 0),
		"~shop:1":      unlinkOne("shop:1", 0),
		"~lock:fill:*": unlinkOne("shop:1", 0),
		"~lock:hold:*": unlinkOne("shop:1", time.Minute),
		"+set":         unlinkOne("shop:1", time.Minute),
		"+pexpire":     unlinkOne("shop:1", time.Minute),
		"~unstale:beacon:*": func(t *testing.T, k *keyspace.Keyspace) error {
			_, err := k.Beacons.CheckBeacon(t.Context())
			return err
		},
		"+get": func(t *testing.T, k *keyspace.Keyspace) error {
			_, err := k.Beacons.CheckBeacon(t.Context())
			return err
		},
		"+ping":             func(t *testing.T, k *keyspace.Keyspace) error { return k.Nodes.Ping(t.Context()) },
		"+publish":          publishOne,
		"&cache:invalidate": publishOne,
		"+scan": func(t *testing.T, k *keyspace.Keyspace) error {
			_, err := k.Sweeper.Sweep(t.Context(), []string{"shop:*"}, nil)
			return err
		},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t)
			rules := []string{"worker", "on", ">secret", "-@all"}
			for _, r := range []string{"+unlink", "+publish", "+set", "+pexpire", "+get", "+scan", "+ping",
				"~shop:1", "~lock:fill:*", "~lock:hold:*", "~unstale:beacon:*", "&cache:invalidate"} {
				if r != rule {
					rules = append(rules, r)
				}
			}
			setUser(t, testenv.Client(t, server.URL()), rules...)
			err := call(t, open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr()), BeaconTTL: time.Hour}))
			if err == nil || !strings.Contains(err.Error(), "grant the redis user "+rule) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func unlinkOne(key string, hold time.Duration) func(t *testing.T, k *keyspace.Keyspace) error {
	return func(t *testing.T, k *keyspace.Keyspace) error {
		done, err := k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: key, Hold: hold}})
		if err == nil && len(done.Failures) == 1 {
			err = done.Failures[0].Err
		}
		return err
	}
}

func publishOne(t *testing.T, k *keyspace.Keyspace) error {
	_, err := k.Publisher.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, keyspace.News{Keys: []string{"shop:1"}})
	return err
}
