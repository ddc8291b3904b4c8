package worker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const shop = "zahraah:prod:"

// stock returns what a shop would have in Redis before each case.
func stock() []string {
	keys := []string{shop + "home", "session:zahraah:1", "other:prod:product:42"}
	for _, id := range []string{"42", "43", "4"} {
		keys = append(keys, shop+"product:"+id)
	}
	for _, category := range []string{"7", "9", "77", "1"} {
		for page := 1; page <= 2; page++ {
			keys = append(keys, fmt.Sprintf("%scategory:%s:list:p%d:sort:new", shop, category, page))
		}
	}
	for _, city := range []string{"cairo", "muscat"} {
		keys = append(keys, shop+"shipping:city:"+city)
	}
	for _, code := range []string{"SUMMER", "summer", "SUMMER2", "*"} {
		keys = append(keys, shop+"coupon:"+code)
	}
	return keys
}

func lists(category string) []string {
	return []string{shop + "category:" + category + ":list:p1:sort:new", shop + "category:" + category + ":list:p2:sort:new"}
}

// One case is one kind of row: the row of the application, the keys that must be gone, the message
// to subscribers.
var shopCases = []struct {
	name           string
	inv            outbox.Invalidation
	gone           []string
	keys, patterns []string
}{
	{
		name: "product", inv: outbox.Invalidation{Entity: "product", ID: "42", Params: map[string]any{"category_id": []int{7, 9}}},
		gone:     append(append([]string{shop + "product:42"}, lists("7")...), lists("9")...),
		keys:     []string{shop + "product:42"},
		patterns: []string{shop + "category:7:list:*", shop + "category:9:list:*"},
	},
	{
		name: "variant", inv: outbox.Invalidation{Entity: "variant", ID: "v1", Params: map[string]any{"product_id": 42, "category_id": 7}},
		gone: append([]string{shop + "product:42"}, lists("7")...),
		keys: []string{shop + "product:42"}, patterns: []string{shop + "category:7:list:*"},
	},
	{
		name: "category", inv: outbox.Invalidation{Entity: "category", ID: "7"},
		gone: append([]string{shop + "home"}, lists("7")...),
		keys: []string{shop + "home"}, patterns: []string{shop + "category:7:list:*"},
	},
	{
		name: "shipping", inv: outbox.Invalidation{Entity: "shipping", ID: "3"},
		gone: []string{shop + "shipping:city:cairo", shop + "shipping:city:muscat"},
		keys: []string{}, patterns: []string{shop + "shipping:city:*"},
	},
	{
		name: "pricing", inv: outbox.Invalidation{Entity: "pricing", ID: "3"},
		gone: []string{shop + "shipping:city:cairo", shop + "shipping:city:muscat"},
		keys: []string{}, patterns: []string{shop + "shipping:city:*"},
	},
	{
		name: "coupon", inv: outbox.Invalidation{Entity: "coupon", ID: "SUMMER"},
		gone: []string{shop + "coupon:SUMMER"}, keys: []string{shop + "coupon:SUMMER"}, patterns: []string{},
	},
	{
		name: "coupon called *", inv: outbox.Invalidation{Entity: "coupon", ID: "*"},
		gone: []string{shop + "coupon:*"}, keys: []string{shop + "coupon:*"}, patterns: []string{},
	},
	{
		name: "inventory", inv: outbox.Invalidation{Entity: "inventory", ID: "s1", Params: map[string]any{"product_id": 42, "category_id": 9}},
		gone: append([]string{shop + "product:42"}, lists("9")...),
		keys: []string{shop + "product:42"}, patterns: []string{shop + "category:9:list:*"},
	},
	{
		name: "a category called ?", inv: outbox.Invalidation{Entity: "category", ID: "?"},
		gone: []string{shop + "home"},
		keys: []string{shop + "home"}, patterns: []string{shop + `category:\?:list:*`},
	},
}

// Each change deletes exactly its keys, and the event names them.
func TestShippedMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	r := w.worker(worker.Config{})
	e := w.listen()
	for _, c := range shopCases {
		t.Run(c.name, func(t *testing.T) {
			w.set(stock()...)
			w.enqueue(c.inv)
			r.drain(t)
			checkLeft(t, w, c.gone)
			keys, patterns := e.heard(len(c.keys) + len(c.patterns))
			if !slices.Equal(keys, c.keys) || !slices.Equal(patterns, c.patterns) {
				t.Errorf("heard %q and %q", keys, patterns)
			}
		})
	}
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func checkLeft(t *testing.T, w *world, gone []string) {
	t.Helper()
	want := slices.DeleteFunc(stock(), func(k string) bool { return slices.Contains(gone, k) })
	slices.Sort(want)
	if got := w.left(); !slices.Equal(got, want) {
		t.Errorf("left   %q\nwanted %q", got, want)
	}
}

// Both formats of the event. In array format an escaped character becomes ?, because the oldest
// clients do not support escapes: it matches too much, never too little.
func TestEventFormats(t *testing.T) {
	t.Parallel()
	inv := outbox.Invalidation{Entity: "product", ID: "42", Params: map[string]any{"category_id": "a*"}}
	key, pattern := shop+"product:42", shop+`category:a\*:list:*`

	w := newWorld(t, "")
	e := w.listen()
	w.enqueue(inv)
	w.worker(worker.Config{}).drain(t)
	for seq, want := range []string{`"keys":["` + key + `"],"patterns":[],"u":`, `"keys":[],"patterns":["` + strings.ReplaceAll(pattern, `\`, `\\`) + `"]}`} {
		raw := e.raw()
		var event struct {
			V     int
			Epoch string
			Seq   int
			At    string
		}
		if err := json.Unmarshal([]byte(raw), &event); err != nil || event.V != 1 || event.Epoch == "" || event.At == "" || !strings.Contains(raw, want) {
			t.Errorf("message %d: %s, %v; wanted ...%s", seq, raw, err, want)
		}
	}

	old := newWorld(t, "")
	src := strings.Replace(readFile(t, old.mapFile), "format: event", "format: array", 1)
	old.writeMap(src)
	e = old.listen()
	old.enqueue(inv)
	old.worker(worker.Config{}).drain(t)
	if got := []string{e.raw(), e.raw()}; got[0] != `["`+key+`"]` || got[1] != `["`+strings.ReplaceAll(pattern, `\*`, "?")+`"]` {
		t.Errorf("array messages: %q", got)
	}
}

// IDs are data: they reach the key as they were written, and no other key is deleted.
func TestIDsAreVerbatim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	r := w.worker(worker.Config{})
	ids := []string{"*", "a\nb", `q"uo'te`, "{x}", "}{", "{}", "عربي", "010", "1.10", "18446744073709551616", " ", `\`, "[a-z]", "a b", "%s", "<&>", "\u2028", "x\x00y"}
	for _, id := range ids {
		neighbours := []string{shop + "coupon:" + id + "x", shop + "coupon:x" + id, shop + "coupon:neighbour"}
		w.set(append(neighbours, shop+"coupon:"+id)...)
		w.enqueue(outbox.Invalidation{Entity: "coupon", ID: id})
		r.drain(t)
		slices.Sort(neighbours)
		if got := w.left(); !slices.Equal(got, neighbours) {
			t.Errorf("%q: left %q", id, got)
		}
		if err := w.redis.Del(t.Context(), neighbours...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// Numbers in parameters keep their text, of any size and form.
func TestNumbersKeepTheirText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', '1', '{"category_id": [18446744073709551616, 1.10, 1e3, -0]}')`)
	r := w.worker(worker.Config{})
	want := []string{"-0", "1.10", "18446744073709551616", "1e3"}
	for _, c := range want {
		w.set(shop + "category:" + c + ":list:p1")
	}
	w.set(shop+"category:1.1:list:p1", shop+"category:1000:list:p1")
	r.drain(t)
	if got := w.left(); !slices.Equal(got, []string{shop + "category:1.1:list:p1", shop + "category:1000:list:p1"}) {
		t.Errorf("left %q", got)
	}
}
