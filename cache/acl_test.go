package cache_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// The commands that the page names are all that a reader needs, and each of them is needed.
func TestReadersPrivileges(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	must(t, err)
	list := regexp.MustCompile("`(\\+get [^`]*)`").FindSubmatch(page)
	if list == nil {
		t.Fatal("the page names no privileges")
	}
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	args := []any{"acl", "setuser", "reader", "on", ">secret", "&*", "-@all"}
	for _, key := range []string{"k", "other", "{*", "lock:*", "stamp:*", "unstale:alive*", "unstale:probe*"} {
		args = append(args, "~"+key)
	}
	for command := range strings.FieldsSeq(string(list[1])) {
		args = append(args, command)
	}
	args = append(args, "("+readerRule(t, "xadd")+")") // in a selector, which has no other keys
	for rule := range strings.FieldsSeq(readerRule(t, "zincrby")) {
		args = append(args, rule)
	}
	must(t, w.client.Do(t.Context(), args...).Err())
	reader := worldAt(t, "redis://reader:secret@"+r.Addr()+"/0")
	channel := "c:" + t.Name()
	memory := memoryOf(channel)
	memory.Report, memory.Process = true, "p"
	c := reader.cache(cache.Config{Memory: memory, Popularity: true})
	b := w.beat(channel, "e")
	open(t, c)
	policy := cache.Moderate.Tagged("t")
	for _, p := range []*cache.Policy{cache.MustPolicy(cache.Options{TTL: time.Minute, SkipMemory: true}), policy, cache.Sliding(time.Minute, time.Hour)} {
		must(t, c.Delete(t.Context(), "k"))
		must(t, c.DeleteTag(t.Context(), "t"))
		wantFetch(t, "first", c, "k", w.db.read, p, "old", cache.FromLoader)
		c.Clear()
		wantFetch(t, "second", c, "k", w.db.read, p, "old", cache.FromRedis)
	}
	done, err := c.Expire(t.Context(), "k", time.Hour)
	if err != nil || !done {
		t.Errorf("Expire: %v, %v", done, err)
	}
	lease, err := c.Lease(t.Context(), "other", cache.Static.Tagged("t"))
	must(t, err)
	lease.Release(t.Context())
	b.publish(protocol.Message{Keys: []string{"k"}})
	testenv.Eventually(t, "the report", func() bool { return w.client.Exists(t.Context(), protocol.ReportKey).Val() == 1 })
	for range 500 {
		wantFetched(t, "k", c, "k", w.db.read, "old")
	}
	_, err = c.Popular(t.Context(), 1)
	must(t, err)
	must(t, c.Close())
	popular, err := w.cache(cache.Config{}).Popular(t.Context(), 1)
	if err != nil || !slices.Equal(popular, []string{"k"}) {
		t.Errorf("Popular: %v, %v", popular, err)
	}
}

// readerRule returns the permissions, from that of the command on, which the page asks for if a
// reader reports.
func readerRule(t *testing.T, command string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "accounts.md"))
	must(t, err)
	rule := regexp.MustCompile("`(\\+" + command + " [^`]*)`").FindSubmatch(page)
	if rule == nil {
		t.Fatal("the page does not name what a reader needs who reports")
	}
	return string(rule[1])
}

// Healthy names the missing permission that makes Redis refuse values, until a value is stored.
func TestHealthyNamesAMissingRight(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	for missing, want := range map[string]string{"-evalsha": "evalsha", "-set": "'set'", "-unlink": "'unlink'", "~none": "NOPERM"} {
		user := strings.Trim(missing, "-~")
		must(t, w.client.Do(t.Context(), "acl", "setuser", user, "on", ">secret", "~*", "&*", "+@all").Err())
		c := w.cache(cache.Config{Redis: clientOf(t, "redis://"+user+":secret@"+r.Addr()+"/0"), Prefix: user})
		wantFetch(t, missing, c, "before", w.db.read, nil, "old", cache.FromLoader)
		must(t, c.Healthy())
		if missing[0] == '~' {
			must(t, w.client.Do(t.Context(), "acl", "setuser", user, "resetkeys", missing).Err())
		} else {
			must(t, w.client.Do(t.Context(), "acl", "setuser", user, missing).Err())
		}
		wantFetch(t, missing, c, "k", w.db.read, nil, "old", cache.FromLoader)
		unnamed := "can't run this command" // as Redis 7.0 says it of a script
		if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), unnamed) {
			t.Errorf("%s: Healthy says %v", missing, err)
		}
		if n := c.Statistics().Errors; n == 0 {
			t.Errorf("%s: no errors are counted", missing)
		}
		must(t, w.client.Do(t.Context(), "acl", "setuser", user, "~*", "+@all").Err())
		wantFetch(t, missing, c, "after", w.db.read, nil, "old", cache.FromLoader)
		if err := c.Healthy(); err != nil {
			t.Errorf("%s: afterwards Healthy says %v", missing, err)
		}
	}
}
