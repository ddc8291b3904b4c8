package cache_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// entry returns what Redis holds under a key.
func (w *world) entry(key string) map[string]any {
	w.Helper()
	var e map[string]any
	testenv.Must(w, json.Unmarshal([]byte(w.stored(key)), &e))
	return e
}

func (w *world) setEntry(key string, e map[string]any) {
	w.Helper()
	text, err := json.Marshal(e)
	testenv.Must(w, err)
	testenv.Must(w, w.client.Set(w.Context(), key, text, time.Hour).Err())
}

func TestEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	before := time.Now().UnixMilli() - 1
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: 30 * time.Second, StaleOnError: time.Hour, Tags: []string{"t"}})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	e := w.entry("k")
	expiry, birth := int64(e["e"].(float64)), int64(e["b"].(float64))/1000
	if e["v"] != "old" || birth < before || birth > time.Now().UnixMilli()+1 || expiry < before+50_000 || expiry > before+75_000 {
		t.Errorf("%v", e)
	}
	if int64(e["s"].(float64))-expiry != 30_000 || int64(e["o"].(float64))-expiry != 3_600_000 {
		t.Errorf("%v", e)
	}
	stamp := w.stored("stamp:t")
	if tags := e["t"].(map[string]any); len(tags) != 1 || tags["t"] != stamp || stamp == "" {
		t.Errorf("%v, stamp %q", e, stamp)
	}
	// Another writer's order of fields.
	for _, text := range []string{
		`{"v":"x","e":99999999999999}`, `{ "e" : 99999999999999, "v" : "x" }`, `{"e":99999999999999,"v":"x","b":5}`,
		`{"e":99999999999999,"zz":{"v":[1]},"v":"x"}`, `{"f":1,"v":"x","e":99999999999999}`,
	} {
		testenv.Must(t, w.client.Set(t.Context(), "other", text, time.Minute).Err())
		wantFetch(t, text, c, "other", w.db.read, nil, "x", cache.FromRedis)
	}
}

// Fields after the value count like those before it: readers accept any order.
func TestFieldsAfterTheValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, packed := w.cache(cache.Config{}), w.cache(cache.Config{CompressAbove: 1})
	many := func(context.Context, []string) (map[string]string, error) { return map[string]string{"k": "old"}, nil }
	for name, test := range map[string]struct {
		text string
		kept bool
	}{
		"a stamp that is gone":                      {`{"e":99999999999999,"v":"x","t":{"T":"gone:1"}}`, false},
		"one of a list":                             {`{"e":99999999999999,"v":["x"],"t":{"T":"gone:1"}}`, false},
		"one of a negative result":                  {`{"e":99999999999999,"n":1,"v":null,"t":{"T":"gone:1"}}`, false},
		"an end that is past":                       {`{"e":99999999999999,"v":"x","e":1}`, false},
		"another format":                            {`{"e":99999999999999,"v":"x","f":3}`, true},
		"another codec":                             {`{"e":99999999999999,"v":"eA==","c":"other"}`, true},
		"another codec beside a stamp that is gone": {`{"e":99999999999999,"t":{"T":"gone:1"},"v":"eA==","c":"other"}`, true},
	} {
		for _, c := range []*cache.Cache{c, packed} {
			testenv.Must(t, w.client.Set(t.Context(), "k", test.text, time.Hour).Err())
			if has, err := c.Has(t.Context(), "k"); has || err != nil {
				t.Errorf("%s: Has: %v, %v", name, has, err)
			}
			if done, err := c.Expire(t.Context(), "k", time.Minute); done || err != nil {
				t.Errorf("%s: Expire: %v, %v", name, done, err)
			}
			wantFetch(t, name, c, "k", w.db.read, nil, "old", cache.FromLoader)
			if kept := w.stored("k") == test.text; kept != test.kept {
				t.Errorf("%s: it is now %s", name, w.stored("k"))
			}
			testenv.Must(t, w.client.Set(t.Context(), "k", test.text, time.Hour).Err())
			got, err := cache.FetchMany(t.Context(), c, []string{"k"}, many, nil)
			if kept := w.stored("k") == test.text; err != nil || got["k"] != "old" || kept != test.kept {
				t.Errorf("%s: FetchMany: %v, %v, it is now %s", name, got, err, w.stored("k"))
			}
		}
	}
	for _, text := range []string{`{"e":99999999999999,"v":null,"n":1}`, `{"e":99999999999999,"v":null,"n":1,"d":3}`} {
		testenv.Must(t, w.client.Set(t.Context(), "k", text, time.Hour).Err())
		_, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
		wantError(t, text, err, cache.ErrNotFound)
	}
	testenv.Must(t, w.client.Set(t.Context(), "k", `{"e":1,"v":"x","s":99999999999999}`, time.Hour).Err())
	if got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, nil); err != nil || got.Value != "x" || !got.Stale {
		t.Errorf("a stale time after the value: %+v, %v", got, err)
	}
	gob := w.cache(cache.Config{Codec: gobCodec{}})
	wantFetch(t, "gob", gob, "gob", w.db.read, nil, "old", cache.FromLoader)
	e := w.entry("gob") // whose fields are sorted in setEntry: c, e and v
	w.setEntry("gob", map[string]any{"e": e["e"], "v": e["v"], "z": 1, "c": "gob"})
	wantFetch(t, "gob in another order", gob, "gob", w.db.read, nil, "old", cache.FromRedis)
	testenv.Must(t, w.client.Set(t.Context(), "gob", fmt.Sprintf(`{"e":99999999999999,"v":"%s","c":"gob"}`, e["v"]), time.Hour).Err())
	wantFetch(t, "gob with its name at the end", gob, "gob", w.db.read, nil, "old", cache.FromRedis)
}

// A text that is not an entry is loaded again and replaced. A foreign entry is left alone.
func TestCorruptAndForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	for _, text := range []string{"", "x", `{"e":`, `{"e":99999999999999}`, `{"v":"x"}`, `{"e":99999999999999,"v":}`, `{"e":99999999999999,"v":7}`, `[]`, `{"e":"soon","v":"x"}`, `{"e":0,"v":"x"}`} {
		testenv.Must(t, w.client.Set(t.Context(), "k", text, time.Minute).Err())
		wantFetch(t, text, c, "k", w.db.read, nil, "old", cache.FromLoader)
		if w.entry("k")["v"] != "old" {
			t.Errorf("%q was not replaced", text)
		}
	}
	for _, text := range []string{`{"f":3,"e":99999999999999,"v":"x"}`, `{"f":"b","data":1}`, `{"e":99999999999999,"c":"msgpack","v":"gQ=="}`, `{"e":{},"f":3}`} {
		testenv.Must(t, w.client.Set(t.Context(), "k", text, time.Minute).Err())
		wantFetch(t, text, c, "k", w.db.read, nil, "old", cache.FromLoader)
		if _, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"k": "new"}, nil
		}, nil); err != nil {
			t.Error(err)
		}
		if got := w.stored("k"); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	testenv.Must(t, w.client.LPush(t.Context(), "list", "a").Err())
	wantFetch(t, "a list", c, "list", w.db.read, nil, "old", cache.FromLoader)
	if w.client.LLen(t.Context(), "list").Val() != 1 {
		t.Error("the list is gone")
	}
}

type gobCodec struct{}

func (gobCodec) Name() string { return "gob" }
func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}
func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func TestCodec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{Codec: gobCodec{}}), w.cache(cache.Config{})
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "second", c, "k", w.db.read, nil, "old", cache.FromRedis)
	if e := w.entry("k"); e["c"] != "gob" {
		t.Errorf("%v", e)
	}
	wantFetch(t, "without the codec", other, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "still", c, "k", w.db.read, nil, "old", cache.FromRedis)
}

func TestPlain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Plain: true})
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "second", c, "k", w.db.read, nil, "old", cache.FromRedis)
	if got := w.stored("k"); got != `"old"` {
		t.Errorf("stored %s", got)
	}
	for _, p := range []*cache.Policy{cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: time.Second}), cache.For(time.Minute).Tagged("t"), cache.Sliding(time.Minute, time.Hour)} {
		if _, err := cache.Fetch(t.Context(), c, "k", w.db.read, p); err == nil || !strings.Contains(err.Error(), "plain cache has no room") {
			t.Errorf("got %v", err)
		}
	}
	for range 2 {
		_, err := cache.Fetch(t.Context(), c, "none", func(context.Context) (string, error) { return "", cache.ErrNotFound }, nil)
		wantError(t, "not found", err, cache.ErrNotFound)
	}
	if s := c.Statistics(); s.Errors != 0 || w.stored("none") != "" {
		t.Errorf("%+v", s)
	}
	p := w.db.paused()
	early := fetchBeside(t, c, "raced", p.load, nil)
	<-p.read
	w.commit("new", "raced")
	close(p.release)
	wantAnswer(t, "early", early, "old")
	wantFetch(t, "late", c, "raced", w.db.read, nil, "new", cache.FromLoader)
	done, err := c.Expire(t.Context(), "raced", time.Hour)
	if ttl := w.client.PTTL(t.Context(), "raced").Val(); err != nil || !done || ttl < 50*time.Minute {
		t.Errorf("Expire: %v, %v, %v", done, err, ttl)
	}
}

// A bare value has no room for tag versions. If its loader gives it a tag, it is loaded each time.
func TestPlainStoresNoTaggedValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Plain: true})
	load := func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).Tag("t")
		return w.db.read(ctx)
	}
	for range 4 { // later calls know the tag version, if there is one
		wantFetch(t, "tagged", c, "k", load, nil, "old", cache.FromLoader)
	}
	w.commit("new", "stamp:t")
	wantFetch(t, "after the tag", c, "k", load, nil, "new", cache.FromLoader)
	many, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
		cache.FillFrom(ctx).Tag("t")
		return map[string]string{"k": "new"}, nil
	}, nil)
	if err != nil || many["k"] != "new" || w.stored("k") != "" {
		t.Errorf("%v, %v, stored %q", many, err, w.stored("k"))
	}
}

// The output of any codec is stored unchanged. Readers without support for entries find nothing
// else.
func TestPlainIsWhatTheCodecWrote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Plain: true, Codec: gobCodec{}})
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	want, err := gobCodec{}.Marshal("old")
	testenv.Must(t, err)
	if got := w.stored("k"); got != string(want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	wantFetch(t, "second", c, "k", w.db.read, nil, "old", cache.FromRedis)
	if has, err := c.Has(t.Context(), "k"); !has || err != nil {
		t.Errorf("Has: %v, %v", has, err)
	}
}

func TestGetHasExpireSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "p:"})
	_, err := cache.Get[string](t.Context(), c, "k")
	wantError(t, "Get", err, cache.ErrMiss)
	if has, err := c.Has(t.Context(), "k"); has || err != nil {
		t.Errorf("Has: %v, %v", has, err)
	}
	if done, err := c.Expire(t.Context(), "k", time.Hour); done || err != nil {
		t.Errorf("Expire: %v, %v", done, err)
	}
	policy := cache.Moderate.Tagged("t")
	lease, err := c.Lease(t.Context(), "k", policy)
	testenv.Must(t, err)
	_, err = c.Lease(t.Context(), "k", policy)
	wantError(t, "a second lease", err, cache.ErrTaken)
	testenv.Must(t, cache.Set(t.Context(), lease, "old"))
	wantError(t, "Set again", cache.Set(t.Context(), lease, "other"), cache.ErrLeaseLost)
	if got, err := cache.Get[string](t.Context(), c, "k"); got != "old" || err != nil {
		t.Errorf("Get: %q, %v", got, err)
	}
	if has, err := c.Has(t.Context(), "k"); !has || err != nil {
		t.Errorf("Has: %v, %v", has, err)
	}
	done, err := c.Expire(t.Context(), "k", 5*time.Hour)
	if ttl := w.client.PTTL(t.Context(), "p:k").Val(); err != nil || !done || ttl < 4*time.Hour {
		t.Errorf("Expire: %v, %v, %v", done, err, ttl)
	}
	if got, err := cache.Get[string](t.Context(), c, "k"); got != "old" || err != nil {
		t.Errorf("Get after Expire: %q, %v", got, err)
	}
	for _, invalidate := range []string{"p:k", "stamp:t"} {
		lease, err = c.Lease(t.Context(), "k", policy)
		testenv.Must(t, err)
		w.unlink(invalidate)
		wantError(t, "Set after "+invalidate, cache.Set(t.Context(), lease, "older"), cache.ErrLeaseLost)
		_, err = cache.Get[string](t.Context(), c, "k")
		wantError(t, "Get", err, cache.ErrMiss)
		lease.Release(t.Context())
	}
	lease, err = c.Lease(t.Context(), "k", policy)
	testenv.Must(t, err)
	if err := cache.Set(t.Context(), lease, func() {}); err == nil || !strings.Contains(err.Error(), "serialize") {
		t.Errorf("Set of a function: %v", err)
	}
	lease, err = c.Lease(t.Context(), "k", policy)
	testenv.Must(t, err)
	lease.Release(t.Context())
}

// A question whether a value is there prolongs nothing, and shortens nothing.
func TestHasTouchesNoTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Policy: cache.Sliding(200*time.Millisecond, time.Minute)})
	wantFetch(t, "static", c, "k", w.db.read, cache.Static, "old", cache.FromLoader)
	for range 2 { // the first one also asks for the time
		has, err := c.Has(t.Context(), "k")
		if left := w.client.PTTL(t.Context(), "k").Val(); !has || err != nil || left < time.Hour {
			t.Errorf("Has: %v, %v, and %v are left", has, err, left)
		}
	}
}

// Set with a lease replaces any value.
func TestSetReplacesWhateverIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	testenv.Must(t, w.client.Set(t.Context(), "format", `{"e":9999999999999,"f":3,"v":"x"}`, 0).Err())
	testenv.Must(t, w.client.Set(t.Context(), "codec", `{"e":9999999999999,"c":"other","v":"eA=="}`, 0).Err())
	testenv.Must(t, w.client.RPush(t.Context(), "list", "x").Err())
	for _, key := range []string{"format", "codec", "list"} {
		wantFetch(t, key, c, key, w.db.read, nil, "old", cache.FromLoader)
		wantFetch(t, key+" is left alone", c, key, w.db.read, nil, "old", cache.FromLoader)
		lease, err := c.Lease(t.Context(), key, nil)
		testenv.Must(t, err)
		testenv.Must(t, cache.Set(t.Context(), lease, "own"))
		if got, err := cache.Get[string](t.Context(), c, key); got != "own" || err != nil {
			t.Errorf("%s: got %q, %v", key, got, err)
		}
	}
}

// Has and Expire read the fields that decide whether a value counts, and not the value.
func TestHasDecodesNoValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	testenv.Must(t, w.client.Set(t.Context(), "k", `{"e":9999999999999,"c":"gzip","v":"AAAA"}`, time.Minute).Err())
	_, err := cache.Get[string](t.Context(), c, "k")
	wantError(t, "Get", err, cache.ErrMiss)
	if has, err := c.Has(t.Context(), "k"); !has || err != nil {
		t.Errorf("Has: %v, %v", has, err)
	}
	if done, err := c.Expire(t.Context(), "k", time.Hour); !done || err != nil {
		t.Errorf("Expire: %v, %v", done, err)
	}
}
