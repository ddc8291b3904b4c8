package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/unstale/unstale/cache/msgpack"
)

// decodeAny decodes a value of any type.
func decodeAny(codec Codec, data []byte) (v any, err error) {
	defer refused(&err)
	err = codec.Unmarshal(data, &v)
	return v, err
}

// For any text in Redis, the fast parser agrees with the one for fields in any order. An entry that
// is written again stays the same, and an entry of an unknown format is foreign.
func FuzzParseEntry(f *testing.F) {
	for _, text := range []string{
		`{"e":1,"b":2,"s":3,"o":4,"d":5,"i":6,"t":{"a":"b:1"},"v":{"x":[1]}}`, `{"e":1,"n":1,"v":null}`, `{"v":1,"e":2}`, `{"e":1,"c":"msgpack","v":"AQ=="}`,
		`{"f":2,"e":1,"b":2,"c":"msgpack","t":{"a":"b:1"}}` + "\n\x01", `{"c":"msgpack","e":1,"f":2}` + "\n\x81\xa1a\x0a", `{"f":2,"e":1}` + "\n[]", `{"f":3}` + "\n\xff", "{\n\"e\":1}", `{"f":2,"e":1,"c":"gzip"}` + "\n\x1f\x8b",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, codec := range []Codec{JSON, msgpack.Codec{}} {
			e, value, err := parseEntry(bytes.Clone(text), codec, decodeAny)
			if line, _, _ := bytes.Cut(text, []byte{'\n'}); !errors.Is(err, errForeign) {
				var is struct {
					F any `json:"f"`
				}
				if json.Unmarshal(line, &is) == nil && is.F != nil && is.F != 1.0 && is.F != 2.0 {
					t.Fatalf("%q: %v, wanted that it is foreign", text, err)
				}
			}
			if err != nil {
				continue
			}
			if other, err := parseOther(text); err == nil { // the fast way allows numbers such as 007
				if slow, err := other.open(codec, decodeAny); err != nil || !same(slow, value) || !sameEntry(other, e) {
					t.Fatalf("%q: %+v of %+v, the other way %v, %+v of %+v", text, value, e, err, slow, other)
				}
			}
			if again, v, err := parseEntry(e.appendTo(nil), codec, decodeAny); err != nil || !same(v, value) || !sameEntry(again, e) {
				t.Fatalf("%q: written again it is %+v of %+v, %v", text, v, again, err)
			}
		}
	})
}

// sameEntry compares all but the text of the value, which may have white space around it.
func sameEntry(a, b entry) bool {
	a.Value, b.Value = nil, nil
	if len(a.Tags) == 0 && len(b.Tags) == 0 {
		a.Tags, b.Tags = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// same compares values, of which some are not numbers.
func same(a, b any) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }

// A someProduct is a value of TestSizesOfEntries.
type someProduct struct {
	ID         int64   `json:"id"`
	Name       string  `json:"name"`
	PriceCents int64   `json:"price_cents"`
	Currency   string  `json:"currency"`
	Stock      int     `json:"stock"`
	CategoryID int64   `json:"category_id"`
	Active     bool    `json:"active"`
	Rating     float64 `json:"rating"`
	Image      string  `json:"image"`
}

func products(n int) []someProduct {
	all := make([]someProduct, n)
	for i := range all {
		h := i*7919 + 4242 // varies
		all[i] = someProduct{int64(100_000 + i), fmt.Sprintf("%s %s %d", []string{"Oak", "Steel", "Linen", "Glass"}[h%4], []string{"chair", "table", "lamp", "shelf", "bowl"}[h%5], h%97),
			int64(h % 50_000), "EUR", h % 300, int64(h % 60), h%9 > 0, float64(h%50) / 10, fmt.Sprintf("/img/%08x.webp", h*104729)}
	}
	return all
}

// entryOf returns an entry as it is stored.
func entryOf(t testing.TB, codec Codec, above int, raw bool, v any) []byte {
	e := entry{Expiry: 1772366399998, Birth: 1772364599998214, Stale: 1772366579998}
	if err := e.encode(codec, above, raw, v); err != nil {
		t.Fatal(err)
	}
	return e.appendTo(nil)
}

// Raw bytes are a quarter shorter than base64, as docs/cache.md says. Sizes of gzip depend on the
// version of Go: -v shows them.
func TestSizesOfEntries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value                    any
		text, packs, raw, zipped int
	}{
		"a product":    {products(1)[0], 219, 247, 204, 219},
		"200 products": {products(200), 32_006, 34_315, 25_755, 9_264},
	} {
		size := func(codec Codec, above int, raw bool) int { return len(entryOf(t, codec, above, raw, test.value)) }
		text, packs, raw := size(JSON, 0, true), size(msgpack.Codec{}, 0, false), size(msgpack.Codec{}, 0, true)
		zipped, rawZipped := size(JSON, 1024, false), size(JSON, 1024, true)
		t.Logf("%s: JSON %d, MessagePack %d, raw %d; gzip %d, raw %d", name, text, packs, raw, zipped, rawZipped)
		if text != test.text || packs != test.packs || raw != test.raw || zipped > test.zipped*11/10 || rawZipped > zipped || zipped < text && rawZipped > zipped*4/5 {
			t.Errorf("%s: wanted %d, %d, %d, and about %d", name, test.text, test.packs, test.raw, test.zipped)
		}
	}
}

// Parsing an entry of bytes allocates less than one of base64.
func TestAllocationsOfParse(t *testing.T) {
	count := func(codec Codec, above int, raw bool) float64 {
		text := entryOf(t, codec, above, raw, strings.Repeat("text ", 100))
		return testing.AllocsPerRun(100, func() {
			if _, _, err := parseEntry(text, codec, func(Codec, []byte) (any, error) { return nil, nil }); err != nil {
				t.Fatal(err)
			}
		})
	}
	if text, raw := count(msgpack.Codec{}, 0, false), count(msgpack.Codec{}, 0, true); raw >= text {
		t.Errorf("%v allocations of base64, %v of bytes", text, raw)
	}
	if n := count(JSON, 0, true); n > 1 {
		t.Errorf("%v allocations of JSON", n)
	}
}

func BenchmarkParseEntry(b *testing.B) {
	for name, c := range map[string]struct {
		codec Codec
		above int
		raw   bool
	}{"JSON": {JSON, 0, false}, "gzip": {JSON, 100, false}, "gzip raw": {JSON, 100, true}, "MessagePack": {msgpack.Codec{}, 0, false}, "MessagePack raw": {msgpack.Codec{}, 0, true}} {
		b.Run(name, func(b *testing.B) {
			text := entryOf(b, c.codec, c.above, c.raw, products(200))
			decode := func(codec Codec, data []byte) (any, error) {
				var v []someProduct
				return nil, codec.Unmarshal(data, &v)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := parseEntry(text, c.codec, decode); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
