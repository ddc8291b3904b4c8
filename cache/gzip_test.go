package cache_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// namedCodec is a codec by another name.
type namedCodec struct {
	cache.Codec
	name string
}

func (c namedCodec) Name() string { return c.name }

// Values are compressed if that makes them shorter, and processes read each other's entries with
// any setting.
func TestCompressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noise := make([]byte, 3000)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%()*+,-./:;=?@[]^_{|}~" // no escapes
	for i := range noise {
		// text of 6.5 bits a byte: base64 takes more away than gzip saves
		noise[i] = letters[rand.N(len(letters))]
	}
	for codecName, codec := range map[string]cache.Codec{"": nil, "gob": gobCodec{}} {
		packing, plain := w.cache(cache.Config{Codec: codec, CompressAbove: 1024}), w.cache(cache.Config{Codec: codec})
		for name, row := range map[string]struct {
			value  string
			packed bool
		}{
			"long":  {strings.Repeat("long text, ", 200), true},
			"short": {strings.Repeat("a", 1000), false},
			"noise": {string(noise), codecName == "gob"},
		} {
			load := func(context.Context) (string, error) { return row.value, nil }
			key := codecName + name
			wantFetch(t, key, packing, key, load, nil, row.value, cache.FromLoader)
			e := w.entry(key)
			want := codecName
			if row.packed {
				want = strings.TrimPrefix(codecName+"+gzip", "+")
			}
			if got, _ := e["c"].(string); got != want {
				t.Errorf("%s: codec %q, want %q", key, got, want)
			}
			if size := len(w.stored(key)); name == "long" && size > 400 {
				t.Errorf("%s: stored %d bytes", key, size)
			}
			wantFetch(t, key, packing, key, load, nil, row.value, cache.FromRedis)
			wantFetch(t, key, plain, key, load, nil, row.value, cache.FromRedis)
			w.unlink(key)
			wantFetch(t, key, plain, key, load, nil, row.value, cache.FromLoader)
			wantFetch(t, key, packing, key, load, nil, row.value, cache.FromRedis)
		}
		_, err := cache.Fetch(t.Context(), packing, codecName+"none", func(context.Context) (string, error) { return "", cache.ErrNotFound }, nil)
		wantError(t, "none", err, cache.ErrNotFound)
		_, err = cache.Get[string](t.Context(), plain, codecName+"none")
		wantError(t, "none", err, cache.ErrNotFound)
	}
}

// packed returns the value of an entry with the concatenated texts.
func packed(t *testing.T, texts ...string) string {
	t.Helper()
	var all []byte
	members := map[string][]byte{}
	for _, text := range texts {
		if members[text] == nil {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, err := w.Write([]byte(text))
			testenv.Must(t, err)
			testenv.Must(t, w.Close())
			members[text] = b.Bytes()
		}
		all = append(all, members[text]...)
	}
	return base64.StdEncoding.EncodeToString(all)
}

// A packed value that is damaged, or larger than any that is stored, is loaded again; one of
// another codec is left alone.
func TestCompressedAndDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	whole := packed(t, `"old"`)
	checksum, err := base64.StdEncoding.DecodeString(whole)
	testenv.Must(t, err)
	checksum[len(checksum)-6] ^= 1
	const other = 99999999999999
	for name, row := range map[string]struct {
		value, codec string
		want         string
		from         cache.Source
	}{
		"whole":      {whole, "gzip", "old", cache.FromRedis},
		"cut":        {whole[:len(whole)-8], "gzip", "new", cache.FromLoader},
		"short":      {"H4s=", "gzip", "new", cache.FromLoader},
		"nothing":    {"", "gzip", "new", cache.FromLoader},
		"not base64": {"%", "gzip", "new", cache.FromLoader},
		"not packed": {base64.StdEncoding.EncodeToString([]byte(`"old"`)), "gzip", "new", cache.FromLoader},
		"checksum":   {base64.StdEncoding.EncodeToString(checksum), "gzip", "new", cache.FromLoader},
		"too large":  {packed(t, slices.Concat([]string{`"`}, slices.Repeat([]string{strings.Repeat("a", 1<<20)}, 64), []string{`"`})...), "gzip", "new", cache.FromLoader},
	} {
		w.setEntry(name, map[string]any{"e": other, "c": row.codec, "v": row.value})
		load := func(context.Context) (string, error) { return "new", nil }
		wantFetch(t, name, c, name, load, nil, row.want, row.from)
		wantFetch(t, name, c, name, load, nil, row.want, cache.FromRedis)
	}
	escaped := `{"c":"gz\u0069p","e":99999999999999,"v":"` + strings.ReplaceAll(whole, "/", `\/`) + `"}`
	testenv.Must(t, w.client.Set(t.Context(), "escaped", escaped, time.Minute).Err())
	wantFetch(t, "escaped", c, "escaped", w.db.read, nil, "old", cache.FromRedis)
	w.setEntry("foreign", map[string]any{"e": other, "c": "gob+gzip", "v": whole})
	before := w.stored("foreign")
	wantFetch(t, "foreign", c, "foreign", w.db.read, nil, "old", cache.FromLoader)
	if w.stored("foreign") != before {
		t.Error("an entry of another codec was replaced")
	}
}
