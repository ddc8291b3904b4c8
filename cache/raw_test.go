package cache_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// With RawValues, values of another codec and compressed ones follow their head as bytes, and JSON
// stays JSON. Processes read each other's entries with any setting.
func TestRawValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := cache.Moderate.Tagged("t")
	for name, config := range map[string]cache.Config{"json": {}, "gob": {Codec: gobCodec{}}, "gzip": {CompressAbove: 1024}, "gob+gzip": {Codec: gobCodec{}, CompressAbove: 1024}} {
		text := w.cache(config)
		config.RawValues = true
		raw := w.cache(config)
		value := strings.Repeat("long\ntext, ", 200)
		load := func(context.Context) (string, error) { return value, nil }
		wantFetch(t, name, raw, name, load, policy, value, cache.FromLoader)
		stored := w.stored(name)
		head, rest, lines := strings.Cut(stored, "\n")
		if lines != (name != "json") || lines && (!strings.HasPrefix(head, `{"f":2,"e":`) || !strings.Contains(head, `"c":"`+name+`"`)) {
			t.Errorf("%s: stored %.200q", name, stored)
		}
		if want, err := (gobCodec{}).Marshal(value); name == "gob" && (err != nil || rest != string(want)) {
			t.Errorf("the value is %.50q, wanted %.50q", rest, want)
		}
		if strings.HasSuffix(name, "gzip") && !strings.HasPrefix(rest, "\x1f\x8b") {
			t.Errorf("%s: the value is %.50q", name, rest)
		}
		for _, c := range []*cache.Cache{raw, text} {
			wantFetch(t, name, c, name, load, policy, value, cache.FromRedis)
			got, err := cache.FetchMany(t.Context(), c, []string{name}, func(context.Context, []string) (map[string]string, error) {
				return nil, errors.New("it is loaded")
			}, policy)
			if err != nil || got[name] != value {
				t.Errorf("%s: FetchMany: %.50q, %v", name, got, err)
			}
			has, err := c.Has(t.Context(), name)
			done, err2 := c.Expire(t.Context(), name, time.Hour)
			if !has || !done || err != nil || err2 != nil {
				t.Errorf("%s: Has: %v, %v, Expire: %v, %v", name, has, err, done, err2)
			}
		}
		if _, after, _ := strings.Cut(w.stored(name), "\n"); after != rest {
			t.Errorf("%s: Expire changed the value to %.50q", name, after)
		}
		w.unlink("stamp:t")
		wantFetch(t, name+" without its tag version", raw, name, load, policy, value, cache.FromLoader)
		w.unlink(name)
		wantFetch(t, name, text, name, load, policy, value, cache.FromLoader)
		if now := w.stored(name); name != "json" && len(now) < len(stored)+len(rest)/4 {
			t.Errorf("%s: %d bytes with base64, %d without", name, len(now), len(stored))
		}
		wantFetch(t, name, raw, name, load, policy, value, cache.FromRedis)
		_, err := cache.Fetch(t.Context(), raw, name+" none", func(context.Context) (string, error) { return "", cache.ErrNotFound }, nil)
		wantError(t, "none", err, cache.ErrNotFound)
		if got := w.entry(name + " none"); got["f"] != nil || got["n"] != 1.0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An entry whose first line has format 2 is read as such, and one whose first line or whole text
// has an unknown format is left alone, whatever follows.
func TestFormats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, gob := w.cache(cache.Config{}), w.cache(cache.Config{Codec: gobCodec{}})
	data, err := gobCodec{}.Marshal("x")
	testenv.Must(t, err)
	zipped, err := base64.StdEncoding.DecodeString(packed(t, `"x"`))
	testenv.Must(t, err)
	const end = `"e":99999999999999`
	for name, test := range map[string]struct {
		c    *cache.Cache
		text string
		want string // "old": it is loaded
		kept bool
	}{
		"gob":                           {gob, `{"f":2,` + end + `,"c":"gob"}` + "\n" + string(data), "x", true},
		"gob in another order":          {gob, `{"zz":[2], "c":"gob",` + end + `, "f":2 }` + "\n" + string(data), "x", true},
		"gob for a reader of JSON":      {c, `{"f":2,` + end + `,"c":"gob"}` + "\n" + string(data), "old", true},
		"gob that is cut":               {gob, `{"f":2,` + end + `,"c":"gob"}` + "\n" + string(data[:len(data)-1]), "old", false},
		"gob in format 1":               {gob, `{` + end + `,"c":"gob"}` + "\n" + string(data), "old", false},
		"gzip":                          {c, `{"f":2,` + end + `,"c":"gzip"}` + "\n" + string(zipped), "x", true},
		"gzip that is cut":              {c, `{"f":2,` + end + `,"c":"gzip"}` + "\n" + string(zipped[:10]), "old", false},
		"JSON":                          {c, `{"f":2,` + end + `}` + "\n" + ` "x" `, "x", true},
		"a value in the head":           {c, `{"f":2,` + end + `,"v":"y"}` + "\n" + `"x"`, "x", true},
		"no value":                      {c, `{"f":2,` + end + `}` + "\n", "old", false},
		"no line":                       {c, `{"f":2,` + end + `,"v":"x"}`, "old", false},
		"a head of two lines":           {c, `{"f":2,` + "\n" + end + `}` + "\n" + `"x"`, "old", false},
		"a tag version of two lines":    {c, `{"f":2,` + end + `,"t":{` + "\n" + `}}` + "\n" + `"x"`, "old", false},
		"no end":                        {c, `{"f":2}` + "\n" + `"x"`, "old", false},
		"a tag version that is gone":    {c, `{"f":2,` + end + `,"t":{"T":"gone:1"}}` + "\n" + `"x"`, "old", false},
		"format 3":                      {c, `{"f":3,"x":{}}` + "\n\x00\xff{", "old", true},
		"format 3 after the fields":     {c, `{` + end + `,"v":"x","f":3}` + "\n" + `"x"}`, "old", true},
		"format 3 in the fast form":     {c, `{"f":2,` + end + `,"f":3}` + "\n" + `"x"`, "old", true},
		"format 3 on several lines":     {c, "{\n" + `"f":3,` + end + "\n}", "old", true},
		"format 0":                      {c, `{"f":0,` + end + `,"v":"x"}`, "old", true},
		"format 3 on a second line":     {c, `{"x":1}` + "\n" + `{"f":3}`, "old", false},
		"JSON on several lines":         {c, "{\n" + end + ",\n" + `"v":"x"` + "\n}\n", "x", true},
		"format 1 and a line that ends": {c, `{"f":1,` + end + `,"v":"x"}` + "\n", "x", true},
	} {
		testenv.Must(t, w.client.Set(t.Context(), "k", test.text, time.Hour).Err())
		got, err := cache.Fetch(t.Context(), test.c, "k", w.db.read, nil)
		if kept := w.stored("k") == test.text; got != test.want || err != nil || kept != test.kept {
			t.Errorf("%s: got %q, %v, stored %q", name, got, err, w.stored("k"))
		}
	}
	// A value that is white space: the whole text is JSON too.
	one := w.cache(cache.Config{Codec: byteCodec{}})
	for _, b := range []byte(" \n\t7") {
		testenv.Must(t, w.client.Set(t.Context(), "k", `{"f":2,"c":"byte",`+end+"}\n"+string(b), time.Hour).Err())
		if got, err := cache.Get[byte](t.Context(), one, "k"); got != b || err != nil {
			t.Errorf("%q: got %q, %v", b, got, err)
		}
	}
}

// A byteCodec writes a byte as it is.
type byteCodec struct{}

func (byteCodec) Name() string                  { return "byte" }
func (byteCodec) Marshal(v any) ([]byte, error) { return []byte{v.(byte)}, nil }
func (byteCodec) Unmarshal(data []byte, v any) error {
	if len(data) != 1 {
		return errors.New("not a byte")
	}
	*v.(*byte) = data[0]
	return nil
}
