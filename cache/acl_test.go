package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

// aclMap has the reads of TestReadersPrivileges.
const aclMap = `version: 1
publish: {channel: "%s"}
entities:
  thing:
    keys: ["shop:thing:{id}"]
    tags: ["thing-{id}"]
reads:
  thing: {key: "shop:thing:{thing_id}", ttl: 5m, tags: ["thing-{thing_id}"]}
`

// The rules of `unstale acl` suffice for a reader with L1 that reports, and each of them is needed.
func TestReadersPrivileges(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, "redis://"+r.Addr()+"/3")
	channel := "c:" + t.Name()
	m, err := invalidation.Parse("mapping.yaml", fmt.Appendf(nil, aclMap, channel), nil)
	testenv.Must(t, err)
	b := w.beat(channel, "e")
	work := func(with string) error {
		testenv.Must(t, w.client.FlushDB(t.Context()).Err())
		// as a worker does
		testenv.Must(t, w.client.HSet(t.Context(), protocol.AliveKey(""), "s", protocol.Alive{Time: time.Now().UnixMicro(), Lease: 10_000, Map: "m"}.String()).Err())
		o, err := redisurl.Parse("redis://reader:secret@"+r.Addr()+"/3", false)
		testenv.Must(t, err)
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.PoolTimeout = patient, patient, patient, patient
		client := redis.NewUniversalClient(redisurl.Recommended(o))
		defer client.Close()
		memory := memoryOf(channel)
		memory.Report, memory.Process = true, "p"
		c, err := cache.New(cache.Config{Redis: client, Prefix: "shop:thing:", Memory: memory, Timeout: patient, Popularity: true})
		testenv.Must(t, err)
		defer c.Close()
		if with == "" {
			open(t, c)
		}
		for _, p := range []*cache.Policy{cache.MustPolicy(cache.Options{TTL: time.Minute, SkipMemory: true}), cache.Moderate.Tagged("thing-1"), cache.Sliding(time.Minute, time.Hour)} {
			for _, from := range []cache.Source{cache.FromLoader, cache.FromRedis} {
				got, err := cache.FetchResult(t.Context(), c, "1", w.db.read, p)
				if with == "" && (err != nil || got.Source != from) {
					return fmt.Errorf("%+v, %w", got, err)
				}
				c.Clear()
			}
			_, err1 := c.Expire(t.Context(), "1", time.Hour)
			lease, err2 := c.Lease(t.Context(), "2", p)
			if err2 == nil {
				lease.Release(t.Context())
			}
			err3 := client.MGet(t.Context(), "shop:thing:1", protocol.StampKey("thing-1")).Err() // as readers in other languages
			if err := errors.Join(err1, err2, err3, c.Delete(t.Context(), "1"), c.DeleteTag(t.Context(), "thing-1")); err != nil {
				return err
			}
		}
		if with == "+ping" { // the subscription sends one a period after it stands, maybe after all else here
			testenv.Eventually(t, "a PING", func() bool { return len(testenv.Denied(t, w.client, "reader")) > 0 })
		}
		if with == "" || strings.Contains(with, "xadd") || strings.HasPrefix(with, "%W") {
			open(t, c)
			_, _ = cache.Fetch(t.Context(), c, "1", w.db.read, nil)
			b.publish(protocol.Message{Keys: []string{"shop:thing:1"}})
			testenv.Eventually(t, "the report", func() bool {
				return w.client.Exists(t.Context(), protocol.ReportKey).Val() == 1 || len(testenv.Denied(t, w.client, "reader")) > 0
			})
		}
		if with == "" || strings.HasPrefix(with, "+z") || strings.Contains(with, "popular") {
			for range 500 {
				_, _ = cache.Fetch(t.Context(), c, "1", w.db.read, nil)
			}
			_, err := c.Popular(t.Context(), 1)
			return errors.Join(err, c.Close()) // which reports
		}
		return nil
	}
	testenv.EachRule(t, w.client, "reader", doctor.ACLRules(doctor.Reader, doctor.ACLOptions{Map: m, Report: true, Popular: true}), work)
}

// The rules of `unstale acl reader --shadow` suffice for shadow reads. Without them, the log
// names what the account needs.
func TestShadowPrivileges(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	of := worldAt(t, r.URL())
	worlds := map[bool]*shadowWorld{}
	for _, may := range []bool{true, false} {
		user := fmt.Sprint("reader-", may)
		text := strings.Replace(fmt.Sprintf(aclMap, "c:"+t.Name()+r.URL()+user), "shop:thing:{", user+":thing:{", 2)
		m, err := invalidation.Parse("mapping.yaml", []byte(text), nil)
		testenv.Must(t, err)
		testenv.SetUser(t, of.client, user, append([]string{"on", ">secret"}, doctor.ACLRules(doctor.Reader, doctor.ACLOptions{Map: m, Shadow: may})...)...)
		w := shadowWorldOf(of, user, func(c *cache.Config) {
			c.Redis, c.Prefix = testenv.Client(t, "redis://"+user+":secret@"+r.Addr()+"/0"), user+":thing:"
		})
		open(t, w.c)
		w.fill("1", w.db.read, fromRedis)
		w.hit("1", returns("new"), fromRedis)
		worlds[may] = w
	}
	testenv.Eventually(t, "a report", func() bool { // on a busy machine L1 may close meanwhile: unknown
		_, err := cache.Fetch(t.Context(), worlds[true].c, "1", returns("new"), fromRedis)
		testenv.Must(t, err)
		return worlds[true].c.Statistics().Shadow.Differs > 0
	})
	worlds[false].want(shadowUnknown)
	for may, w := range worlds {
		if refused := len(w.log.with("+xadd %W~"+protocol.ShadowKey)) == 1; refused == may {
			t.Errorf("%v: %s", may, w.log.text.String())
		}
	}
}

// Healthy names the missing permission that makes Redis refuse values, until a value is stored.
func TestHealthyNamesAMissingRight(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	for missing, want := range map[string]string{"-evalsha": "evalsha", "-set": "'set'", "-unlink": "'unlink'", "~none": "NOPERM"} {
		user := strings.Trim(missing, "-~")
		testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", user, "on", ">secret", "~*", "&*", "+@all").Err())
		c := w.cache(cache.Config{Redis: testenv.Client(t, "redis://"+user+":secret@"+r.Addr()+"/0"), Prefix: user})
		wantFetch(t, missing, c, "before", w.db.read, nil, "old", cache.FromLoader)
		testenv.Must(t, c.Healthy())
		if missing[0] == '~' {
			testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", user, "resetkeys", missing).Err())
		} else {
			testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", user, missing).Err())
		}
		wantFetch(t, missing, c, "k", w.db.read, nil, "old", cache.FromLoader)
		unnamed := "can't run this command" // as Redis 7.0 says it of a script
		if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), unnamed) {
			t.Errorf("%s: Healthy says %v", missing, err)
		}
		if n := c.Statistics().Errors; n == 0 {
			t.Errorf("%s: no errors are counted", missing)
		}
		testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", user, "~*", "+@all").Err())
		wantFetch(t, missing, c, "after", w.db.read, nil, "old", cache.FromLoader)
		if err := c.Healthy(); err != nil {
			t.Errorf("%s: afterwards Healthy says %v", missing, err)
		}
	}
}

// Healthy names the missing permission for a tag, even one that only the loader names, also during
// the next load, until a value is stored.
func TestHealthyNamesATag(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	m, err := invalidation.Parse("mapping.yaml", fmt.Appendf(nil, aclMap, "c"), nil)
	testenv.Must(t, err)
	testenv.SetUser(t, w.client, "reader", append([]string{"on", ">secret", "-@all"}, doctor.ACLRules(doctor.Reader, doctor.ACLOptions{Map: m})...)...)
	c := w.cache(cache.Config{Redis: testenv.Client(t, "redis://reader:secret@"+r.Addr()+"/0"), Prefix: "shop:thing:"})
	tagged := func(ctx context.Context, keys []string) (map[string]string, error) {
		cache.FillFrom(ctx).Tag("category-7")
		return allOf(keys), nil
	}
	wantHealthy := func(what string, refused bool, failures uint64) {
		t.Helper()
		if err := c.Healthy(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "nothing is stored") {
			t.Errorf("%s: Healthy says %v", what, err)
		}
		if n := c.Statistics().Errors; n != failures {
			t.Errorf("%s: %d errors are counted, want %d", what, n, failures)
		}
	}
	for i, what := range []string{"first", "again"} {
		_, err = cache.FetchMany(t.Context(), c, []string{"1", "2"}, func(ctx context.Context, keys []string) (map[string]string, error) {
			wantHealthy(what+", during the load", i > 0, uint64(2*i))
			return tagged(ctx, keys)
		}, nil)
		testenv.Must(t, err)
		wantHealthy(what, true, uint64(2*i+2))
	}
	wantFetch(t, "another tag", c, "1", w.db.read, nil, "old", cache.FromLoader)
	wantHealthy("another tag", false, 4)
	wantFetch(t, "the policy's tag", c, "2", w.db.read, cache.Moderate.Tagged("category-7"), "old", cache.FromLoader)
	wantHealthy("the policy's tag", true, 5)
}

// Popular names the rule that an account lacks.
func TestPopularNamesItsRule(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	testenv.SetUser(t, w.client, "reader", "on", ">secret", "~*", "+@all", "-zrange")
	c := w.cache(cache.Config{Redis: testenv.Client(t, "redis://reader:secret@"+r.Addr()+"/0")})
	_, err := c.Popular(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "popular: an account needs +zrange %R~unstale:popular:*: ") || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("got %v", err)
	}
}
