package doctor_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

const readsMap = `version: 1
vars: {app: shop}
types: {product_id: int}
entities:
  product: {keys: ["{app}:product:{id}"], tags: ["product-{id}"], patterns: ["{app}:list:*"]}
reads:
  product_page: {key: "{app}:product:{product_id}", tags: ["product-{product_id}"], ttl: 5m..15m, stale: off, negative: 1m}
  list: {key: "{app}:list:{sort}", ttl: 10m}
  cart: {key: "{app}:cart:{user}", ttl: 1h, sliding: 5h, expires: {only: "belongs to one user"}}
`

// reviewed reviews keys with their TTLs.
func reviewed(t *testing.T, all bool, keys map[string]time.Duration) *doctor.ReviewReport {
	t.Helper()
	m, err := invalidation.Parse("map.yaml", []byte(readsMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := doctor.NewReview(m, nil)
	for name, ttl := range keys {
		r.Note([]keyspace.KeyInfo{{Name: name, TTL: ttl, Bytes: 10, Freq: -1}})
	}
	return r.Report(keyspace.Walked{Seen: int64(len(keys)), All: all}, nil)
}

// Keys are filed by the reads of the map. A key that lives too long, a key of no read, and a read
// without keys are reported, and only these.
func TestReads(t *testing.T) {
	t.Parallel()
	keys := map[string]time.Duration{
		"shop:product:1": 15 * time.Minute, "shop:product:2": time.Second, "stamp:product-1": 48 * time.Hour, "stamp:prodct-1": 48 * time.Hour,
		"shop:list:new": 12*time.Minute + 30*time.Second, "shop:cart:7": 5 * time.Hour, "session:1": time.Hour, "lock:fill:{shop:product:1}": time.Second,
	}
	good := reviewed(t, true, keys)
	for _, check := range []string{"lifetime", "unnamed", "reads", "entities"} {
		want(t, good, check, doctor.OK)
	}
	want(t, good, "reach", doctor.Unknown, "reaches: 1.", "session:1")
	families := map[doctor.KeyName]doctor.Family{}
	for _, f := range good.Biggest {
		families[f.Name] = f
	}
	if f := families["{app}:product:{product_id}"]; f.Read != "product_page" || f.Entity != "product" || f.Keys != 2 || !families["stamp:*"].Own || families["{app}:cart:{user}"].Entity != "" {
		t.Errorf("%+v", families)
	}
	var text bytes.Buffer
	if err := good.Text(&text); err != nil || !strings.Contains(text.String(), "read product_page, product ") || !strings.Contains(text.String(), "read cart ") {
		t.Errorf("%v: %s", err, text.String())
	}

	keys["shop:product:1"], keys["shop:cart:7"] = 20*time.Hour, 6*time.Hour
	keys["shop:product:042"], keys["shop:prodct:3"], keys["shop:list:price:asc"] = time.Minute, time.Minute, time.Minute
	delete(keys, "shop:list:new")
	bad := reviewed(t, true, keys)
	want(t, bad, "lifetime", doctor.Warning, "allows: 2", `1 of "{app}:product:{product_id}", such as "shop:product:1": 20h0m0s left, at most 15m0s`, "at most 5h0m0s")
	want(t, bad, "unnamed", doctor.Warning, "names: 3", `1 of "shop:prodct:*", such as "shop:prodct:3"`, `such as "shop:product:042"`, "1 of them are of a read if a value may contain a colon")
	want(t, bad, "reads", doctor.Info, "list")
	want(t, reviewed(t, false, nil), "reads", doctor.Info, "product_page, list, cart")
}

// Values that are stored for less time than the map says show only if no key has more time left.
func TestReadsThatEndSoon(t *testing.T) {
	t.Parallel()
	keys := map[string]time.Duration{}
	for n := range 20 {
		keys[fmt.Sprint("shop:product:", n)] = time.Duration(n) * time.Second
	}
	want(t, reviewed(t, true, keys), "lifetime", doctor.Info, `20 of "{app}:product:{product_id}": at most 19s left of 5m0s`)
	keys["shop:product:1"] = time.Minute
	for _, f := range reviewed(t, true, keys).Findings {
		if f.Check == "lifetime" && f.Severity == doctor.Info {
			t.Errorf("%+v", f)
		}
	}
}

// Without reads in the map, nothing is told about them.
func TestNoReads(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(shopMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range doctor.NewReview(m, nil).Report(keyspace.Walked{All: true}, nil).Findings {
		if f.Check == "lifetime" || f.Check == "unnamed" || f.Check == "reads" {
			t.Errorf("%+v", f)
		}
	}
}

// A key lives for long if its TTL or the time since it was last used is above a day, and above what
// its read allows. Keys of unstale do not count.
func TestLongLives(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(`version: 1
entities: {page: {keys: ["shop:page:{id}"], tags: ["page-{id}"]}, tagged: {tags: ["tagged-{id}"]}}
reads: {page: {key: "shop:page:{page_id}", tags: ["tagged-{page_id}"], ttl: 48h}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := doctor.NewReview(m, nil)
	note := func(name string, ttl, idle time.Duration) {
		r.Note([]keyspace.KeyInfo{{Name: name, TTL: ttl, Bytes: 200 << 10, Freq: -1, Idle: idle}})
	}
	note("shop:page:1", 50*time.Hour, 50*time.Hour)
	note("other:1", 23*time.Hour, 23*time.Hour)
	note("stamp:tagged-1", 50*time.Hour, 50*time.Hour)
	walked := keyspace.Walked{Seen: 3, All: true}
	good := r.Report(walked, nil)
	want(t, good, "database", doctor.OK)
	want(t, good, "entities", doctor.OK) // a tag version is enough
	want(t, good, "size", doctor.Warning, "KiB: 2.")
	walked.Untold, walked.Denied = []string{"+object|idletime"}, []string{"+object|idletime"}
	want(t, r.Report(walked, nil), "database", doctor.Unknown, "the account lacks +object|idletime")
	note("shop:page:2", time.Hour, 70*time.Hour)
	note("other:2", keyspace.NoTTL, 25*time.Hour)
	want(t, r.Report(keyspace.Walked{Seen: 5, All: true}, nil), "database", doctor.Warning, "for so long: 2.", `1 of "shop:page:{page_id}", such as "shop:page:2": for 70h0m0s`, `1 of "other:*", such as "other:2": for 25h0m0s`)
}
