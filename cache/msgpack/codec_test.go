package msgpack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/msgpack"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var _ cache.Codec = msgpack.Codec{}

type inner struct {
	Name string `json:"name"`
}

type values struct {
	inner
	Renamed  int    `json:"id" msgpack:"i"`
	Left     string `json:"-"`
	hidden   int
	Empty    []int `json:",omitempty"`
	Embedded *inner
}

// there encodes a value and decodes it into one of the same type.
func there(t *testing.T, codec cache.Codec, v any) any {
	t.Helper()
	data, err := codec.Marshal(v)
	if err != nil {
		t.Fatalf("marshal %#v: %v", v, err)
	}
	to := reflect.New(reflect.TypeOf(v))
	if err := codec.Unmarshal(data, to.Interface()); err != nil {
		t.Fatalf("unmarshal %#v: %v", v, err)
	}
	return to.Elem().Interface()
}

// Values whose decoded form differs from the original in at least one of the codecs.
func TestWhatComesBack(t *testing.T) {
	t.Parallel()
	type box struct{ V any }
	zone := time.FixedZone("here", 3600)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, zone)
	same := "the same"
	for name, row := range map[string]struct {
		value         any
		json, msgpack any
	}{
		"time":                      {at, at, at.UTC()},
		"bytes":                     {[]byte{0, 255}, same, same},
		"nil bytes":                 {[]byte(nil), same, same},
		"nil slice":                 {[]int(nil), same, same},
		"empty slice":               {[]int{}, same, same},
		"nil map":                   {map[string]int(nil), same, same},
		"empty map":                 {map[string]int{}, same, same},
		"int64 beyond 2^53":         {int64(1<<53 + 1), same, same},
		"uint64":                    {uint64(math.MaxUint64), same, same},
		"json.Number":               {json.Number("12.50"), same, same},
		"address":                   {netip.MustParseAddr("192.0.2.1"), same, same},
		"text that is not UTF-8":    {"a\xffb", "a�b", same},
		"struct":                    {values{inner{"n"}, 7, "x", 1, []int{}, &inner{"e"}}, values{inner: inner{"n"}, Renamed: 7, Embedded: &inner{"e"}}, values{inner: inner{"n"}, Renamed: 7, Empty: []int{}, Embedded: &inner{"e"}}},
		"map with numbers for keys": {map[int]string{1: "a"}, same, same},
		"untyped int64 beyond 2^53": {box{int64(1<<53 + 1)}, box{float64(1 << 53)}, same},
		"untyped small number":      {box{7}, box{7.0}, box{int64(7)}},
		"untyped unsigned beyond":   {box{uint64(math.MaxUint64)}, box{float64(math.MaxUint64)}, same},
		"untyped bytes":             {box{[]byte{1}}, box{"AQ=="}, same},
		"untyped time":              {box{at}, box{"2026-03-01T12:00:00.123456789+01:00"}, box{at.UTC()}},
		"untyped struct":            {box{inner{"n"}}, box{map[string]any{"name": "n"}}, box{map[string]any{"name": "n"}}},
		"untyped list":              {box{[]int{1}}, box{[]any{1.0}}, box{[]any{int64(1)}}},
		"untyped nil":               {box{nil}, same, same},
		"pointer to nothing":        {struct{ P *int }{}, same, same},
		"duration":                  {time.Duration(90), same, same},
		"array of bytes":            {[3]byte{1, 2, 3}, same, same},
		"fraction":                  {box{1.5}, same, same},
	} {
		want := func(w any) any {
			if w == same {
				return row.value
			}
			return w
		}
		if got := there(t, cache.JSON, row.value); !reflect.DeepEqual(asUTC(got), asUTC(want(row.json))) {
			t.Errorf("%s: JSON gives %#v, want %#v", name, got, want(row.json))
		}
		if got := there(t, msgpack.Codec{}, row.value); !reflect.DeepEqual(got, want(row.msgpack)) {
			t.Errorf("%s: MessagePack gives %#v, want %#v", name, got, want(row.msgpack))
		}
	}
}

// asUTC makes instants comparable that JSON decodes with another time zone.
func asUTC(v any) any {
	if at, ok := v.(time.Time); ok {
		return at.UTC()
	}
	return v
}

type textOnly struct{ hidden string }

func (t textOnly) MarshalText() ([]byte, error)     { return []byte(t.hidden), nil }
func (t *textOnly) UnmarshalText(text []byte) error { t.hidden = string(text); return nil }

// The library would write these without what they hold, and bring back their zero: of an amount of
// money, say.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	type order struct {
		Lines []struct{ Price *big.Int }
	}
	for want, v := range map[string]any{
		"msgpack_test.textOnly hides what it holds and cannot write it as bytes: it needs MarshalBinary and UnmarshalBinary": textOnly{"x"},
		"big.Int hides":               order{},
		"nothing for a chan int":      make(chan int),
		"nothing for a func()":        map[string]func(){},
		"nothing for a complex128":    []complex128{1},
		"msgpack_test.order.Lines: s": &order{},
	} {
		for range 2 {
			if _, err := (msgpack.Codec{}).Marshal(v); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%T: got %v, want %q", v, err, want)
			}
		}
	}
	type node struct {
		Next *node
		F    func() `json:"-"`
	}
	there(t, msgpack.Codec{}, node{Next: &node{}})
	if _, err := (msgpack.Codec{}).Marshal(nil); err != nil {
		t.Error(err)
	}
}

// Damaged data costs an error, and neither the process nor its memory.
func TestDamaged(t *testing.T) {
	t.Parallel()
	whole, err := msgpack.Codec{}.Marshal(map[string]any{"a": []string{"b", "c"}, "t": time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"nothing": {}, "more than a value": append(bytes.Clone(whole), 1),
		"a huge list": {0xdd, 0xff, 0xff, 0xff, 0xff}, "a huge map": {0xdf, 0xff, 0xff, 0xff, 0xff}, "a huge text": {0xdb, 0xff, 0xff, 0xff, 0xff},
		"nested for ever": bytes.Repeat([]byte{0x91}, 10_000_000), "no code": {0xc1},
	}
	for i := range whole {
		damaged["cut"+string(rune('0'+i))] = whole[:i]
	}
	for name, data := range damaged {
		var v any
		if err := (msgpack.Codec{}).Unmarshal(data, &v); err == nil {
			t.Errorf("%s: got %v", name, v)
		}
		var list []int64
		if err := (msgpack.Codec{}).Unmarshal(data, &list); err == nil {
			t.Errorf("%s: got %v", name, list)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{0x81, 0xa1, 'a', 0xc4, 1, 2})
	f.Add([]byte{0xd6, 0xff, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		_ = msgpack.Codec{}.Unmarshal(data, &v)
		var s values
		_ = msgpack.Codec{}.Unmarshal(data, &s)
	})
}

// A decoded value does not refer to the data, and goroutines can share the codec.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 500 {
				in := map[string][]byte{"k": bytes.Repeat([]byte{byte(i)}, n)}
				data, err := msgpack.Codec{}.Marshal(in)
				if err != nil {
					t.Error(err)
					return
				}
				var out map[string][]byte
				err = msgpack.Codec{}.Unmarshal(data, &out)
				clear(data)
				if err != nil || !reflect.DeepEqual(out, in) {
					t.Errorf("%v, %v", out, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// An entry has the name of the codec, and a reader of JSON leaves it alone.
func TestEntries(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	make := func(codec cache.Codec, raw bool) *cache.Cache {
		o, err := redis.ParseURL(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		o.ContextTimeoutEnabled = true
		client := redis.NewClient(o)
		c, err := cache.New(cache.Config{Redis: client, Codec: codec, RawValues: raw, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Close(), client.Close() })
		return c
	}
	packs, raw, texts := make(msgpack.Codec{}, false), make(msgpack.Codec{}, true), make(nil, false)
	load := func(context.Context) (values, error) { return values{inner: inner{"n"}, Renamed: 1}, nil }
	for _, step := range []struct {
		c    *cache.Cache
		from cache.Source
	}{{packs, cache.FromLoader}, {packs, cache.FromRedis}, {texts, cache.FromLoader}, {raw, cache.FromRedis}, {packs, cache.FromRedis}} {
		got, err := cache.FetchResult(t.Context(), step.c, "k", load, nil)
		if err != nil || got.Source != step.from || got.Value.Name != "n" {
			t.Errorf("%+v, %v, wanted it from %v", got, err, step.from)
		}
	}
	var entry struct {
		Codec string `json:"c"`
		Value []byte `json:"v"`
	}
	text, err := server.Client.Get(t.Context(), "k").Bytes()
	if err != nil || json.Unmarshal(text, &entry) != nil || entry.Codec != "msgpack" {
		t.Errorf("%s, %v", text, err)
	}
	var got values
	if err := (msgpack.Codec{}).Unmarshal(entry.Value, &got); err != nil || got.Renamed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := server.Client.Del(t.Context(), "k").Err(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		c    *cache.Cache
		from cache.Source
	}{{raw, cache.FromLoader}, {raw, cache.FromRedis}, {texts, cache.FromLoader}, {packs, cache.FromRedis}} {
		got, err := cache.FetchResult(t.Context(), step.c, "k", load, nil)
		if err != nil || got.Source != step.from || got.Value.Name != "n" {
			t.Errorf("with bytes: %+v, %v, wanted it from %v", got, err, step.from)
		}
	}
}
