package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

const shopMap = `version: 1
entities:
  product: {keys: ["shop:product:{id}"], patterns: ["shop:list:{id}:*"]}
  coupon: {keys: ["shop:coupon:{id}"]}
`

// A cacheOfKeys is a Redis with an account for reviews.
type cacheOfKeys struct {
	t     *testing.T
	admin *redis.Client
	keys  *keyspace.Keyspace
}

func newCache(t *testing.T) *cacheOfKeys {
	t.Helper()
	server := testenv.OwnRedis(t)
	c := &cacheOfKeys{t: t, admin: redis.NewClient(&redis.Options{Addr: server.Addr()})}
	t.Cleanup(func() { _ = c.admin.Close() })
	if err := c.admin.Do(t.Context(), "acl", "setuser", "review", "on", ">secret", "-@all", "+ping", "+select", "+info", "+scan", "+dbsize", "+pttl", "+memory|usage", "+type", "+object|freq", "+object|idletime", "%R~*").Err(); err != nil {
		t.Fatal(err)
	}
	options, err := redisurl.Parse("redis://review:secret@"+server.Addr(), false)
	if err != nil {
		t.Fatal(err)
	}
	if c.keys, err = keyspace.Open(keyspace.Options{Redis: options, SweepShare: 1, Timeout: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.keys.Close() })
	return c
}

func (c *cacheOfKeys) set(name string, size int, ttl time.Duration) {
	c.t.Helper()
	if err := c.admin.Set(c.t.Context(), name, make([]byte, size), ttl).Err(); err != nil {
		c.t.Fatal(err)
	}
}

// review reviews all keys. It uses shopMap if mapped.
func (c *cacheOfKeys) review(mapped bool) *doctor.ReviewReport {
	c.t.Helper()
	var m *invalidation.Map
	if mapped {
		var err error
		if m, err = invalidation.Parse("map.yaml", []byte(shopMap), func(string) (string, bool) { return "", false }); err != nil {
			c.t.Fatal(err)
		}
	}
	r := doctor.NewReview(m, nil)
	r.User = "review"
	w, err := c.keys.Contents.Walk(c.t.Context(), 1_000_000, r.Note)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Report(w, nil)
}

// want checks the severity and the text of a finding.
func want(t *testing.T, r *doctor.ReviewReport, check string, s doctor.Severity, texts ...string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check != check || f.Severity != s {
			continue
		}
		said := f.Title + "\n" + f.Evidence
		for _, text := range texts {
			if !strings.Contains(said, text) {
				t.Errorf("%s does not say %q: %+v", check, text, f)
			}
		}
		return
	}
	t.Errorf("%s: no finding is %s: %+v", check, s, r.Findings)
}

// Each fault of a cache is reported, and only after it was planted.
func TestReview(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	for i := range 300 {
		c.set(fmt.Sprint("shop:product:", i), 100, time.Hour)
		c.set(fmt.Sprint("shop:coupon:", i), 10, time.Hour)
	}
	c.set("lock:fill:{shop:product:1}", 10, 0)
	// without a TTL
	if err := c.admin.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: []string{"process", "p"}}).Err(); err != nil {
		t.Fatal(err)
	}
	good := c.review(true)
	for _, check := range []string{"ttl", "size", "reach", "entities", "database", "names"} {
		want(t, good, check, doctor.OK)
	}
	want(t, good, "hottest", doctor.Unknown, "-lfu")
	c.admin.Del(t.Context(), protocol.ReportKey)
	if good.Walked.Keys < 601 || !good.Walked.All || good.Biggest[0].Entity != "product" || good.Biggest[0].Keys != 300 {
		t.Errorf("%+v, %+v", good.Walked, good.Biggest)
	}
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	if !pageFinds(string(page), fault{name: "keys without a time to live", check: "--keys", severity: doctor.Warning, account: "review"}) {
		t.Error("docs/doctor.md does not name keys without a time to live")
	}

	c.set("shop:product:eternal", 10, 0)
	c.set("shop:product:large", 200<<10, time.Hour)
	c.set("somebody:Else's", 10, time.Hour)
	c.set("shop:product:long", 10, 48*time.Hour)
	c.set("shop:list:7:newest", 10, time.Hour)
	bad := c.review(true)
	want(t, bad, "ttl", doctor.Warning, "time to live: 1.", `"shop:product:{id}"`, "shop:product:eternal")
	want(t, bad, "size", doctor.Warning, "shop:product:large", "1 of")
	if l := bad.Largest; len(l) != 10 || l[0].Name != "shop:product:large" || l[0].Bytes < 200<<10 || l[1].Bytes < l[9].Bytes {
		t.Errorf("the largest keys are %+v", l)
	}
	want(t, bad, "reach", doctor.Warning, "somebody:Else's")
	want(t, bad, "names", doctor.Info, "1 with upper case", "quote")
	want(t, bad, "database", doctor.Warning, "for so long: 1.", `1 of "shop:product:{id}", such as "shop:product:long": for 48h0m0s`)
	unused := doctor.NewReview(nil, nil)
	unused.Note([]keyspace.KeyInfo{{Name: "shop:list:7:newest", TTL: time.Hour, Idle: 30 * time.Hour}})
	want(t, unused.Report(keyspace.Walked{All: true}, nil), "database", doctor.Warning, "for so long: 1.", `such as "shop:list:7:newest": for 30h0m0s`)
	want(t, c.review(false), "reach", doctor.Unknown, "")
	if _, err := c.admin.Unlink(t.Context(), couponNames()...).Result(); err != nil {
		t.Fatal(err)
	}
	want(t, c.review(true), "entities", doctor.Warning, "coupon")
	if err := c.admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err(); err != nil {
		t.Fatal(err)
	}
	if hot := c.review(true); len(hot.Hottest) == 0 || hot.Hottest[0].HottestKey == "" {
		t.Errorf("%+v", hot.Hottest)
	}
	testForms(t, bad)
	testNames(c)
	testHidden(c)
}

// testHidden checks that everything is unknown, and never well, that the account may not read about a single key.
func testHidden(c *cacheOfKeys) {
	t := c.t
	t.Helper()
	c.set("tag:secret", 10, 0)
	if err := c.admin.Do(t.Context(), "acl", "setuser", "review", "resetkeys", "%R~shop:*").Err(); err != nil {
		t.Fatal(err)
	}
	hidden := c.review(true)
	for _, check := range []string{"ttl", "size", "hottest", "database"} {
		want(t, hidden, check, doctor.Unknown, "the account lacks %R~*: it may not read 3 of ")
	}
	want(t, hidden, "ttl", doctor.Warning, "shop:product:eternal") // which it may read
	for _, f := range hidden.Findings {
		if strings.HasPrefix(f.Cure, "ACL") && f.Cure != "ACL SETUSER review %R~*" {
			t.Errorf("the cure is not one: %+v", f)
		}
	}
	if err := c.admin.Unlink(t.Context(), "shop:product:eternal").Err(); err != nil {
		t.Fatal(err)
	}
	want(t, c.review(true), "ttl", doctor.Unknown, "of the keys that it may read: every key has a time to live")
}

func couponNames() (names []string) {
	for i := range 300 {
		names = append(names, fmt.Sprint("shop:coupon:", i))
	}
	return names
}

// testNames checks that a name may be any bytes: it forges no line, is truncated if it is long, and
// can be hidden.
func testNames(c *cacheOfKeys) {
	t := c.t
	t.Helper()
	names := []string{"a\x1b]0;pwned\x07\nok        ttl       every key has a time to live", "zz:\xff\xfe", "https://evil|`<b>" + strings.Repeat("ä", 1500)}
	for _, name := range names {
		c.set(name, 10, 0)
	}
	if err := c.admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	told := func(noNames bool) (text, page, object string) {
		t.Helper()
		r := doctor.NewReview(nil, nil)
		r.NoNames = noNames
		w, err := c.keys.Contents.Walk(t.Context(), 1_000_000, r.Note)
		var b [2]bytes.Buffer
		report := r.Report(w, err)
		raw, marshalErr := json.Marshal(report)
		if err := errors.Join(err, report.Text(&b[0]), report.Markdown(&b[1]), marshalErr); err != nil {
			t.Fatal(err)
		}
		return b[0].String(), b[1].String(), string(raw)
	}
	text, page, object := told(false)
	for form, s := range map[string]string{"text": text, "Markdown": page} {
		if strings.ContainsAny(s, "\x1b\x07") || strings.Contains(s, "\nok        ttl") || strings.Contains(s, strings.Repeat("ä", 101)) || !strings.Contains(s, "(3017 bytes)") || !strings.Contains(s, "x1b]0;pwned") {
			t.Errorf("%s: %s", form, s)
		}
	}
	if strings.Contains(page, "<b>") || strings.Contains(page, "https://") {
		t.Errorf("a name is markup: %s", page)
	}
	if !strings.Contains(object, `{"base64":"eno6//4="}`) || strings.Contains(object, "\\ufffd") || strings.Contains(object, `"hottest_key"`) {
		t.Errorf("%s", object)
	}
	text, page, object = told(true)
	for _, s := range []string{text, page, object} {
		if strings.Contains(s, "product:large") || strings.Contains(s, `_key"`) || strings.Contains(s, "Else's") {
			t.Errorf("it tells names: %s", s)
		}
	}
	if err := errors.Join(c.admin.Unlink(t.Context(), names...).Err(), c.admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err()); err != nil {
		t.Fatal(err)
	}
}

// testForms checks that names are data in every format.
func testForms(t *testing.T, r *doctor.ReviewReport) {
	t.Helper()
	r.Biggest[0].Name = "a|b<script>\n\x1b[31m"
	var text, page bytes.Buffer
	if err := errors.Join(r.Text(&text), r.Markdown(&page)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "Biggest families") || strings.Contains(s, "\x1b") {
		t.Errorf("%s", s)
	}
	if s := page.String(); !strings.HasPrefix(s, "# Review of keys\n") || strings.Contains(s, "<script>") || !strings.Contains(s, `a\|b&lt;script&gt;`) {
		t.Errorf("%s", s)
	}
	if object, err := json.Marshal(r); err != nil || !strings.Contains(string(object), `"walked":{"keys":`) {
		t.Errorf("%s, %v", object, err)
	}
}

// Properties that the account may not read, and keys that the walk did not reach, are unknown and
// never well.
func TestReviewOfWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	for i := range 2000 {
		c.set(fmt.Sprint("shop:product:", i), 10, time.Hour)
	}
	if err := c.admin.Do(t.Context(), "acl", "setuser", "review", "-pttl", "-memory|usage").Err(); err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("map.yaml", []byte(shopMap), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := doctor.NewReview(m, nil)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.keys.Contents.Walk(ctx, 1_000_000, func(keys []keyspace.KeyInfo) { r.Note(keys); cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	report := r.Report(w, err)
	for _, check := range []string{"ttl", "size", "database", "entities", "seen", "names", "reach"} {
		want(t, report, check, doctor.Unknown)
	}
	if report.Walked.Stopped == "" || report.Walked.Keys == 0 || report.Walked.Total != 2000 {
		t.Errorf("%+v", report.Walked)
	}
}
