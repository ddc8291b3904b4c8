package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// heapAlloc returns the bytes of the objects that are reachable.
func heapAlloc() int64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

type flatProduct struct {
	ID    int
	Name  string
	Price float64
	Text  []byte
	At    time.Time
}

// Memory.Bytes counts what entries take: within 15 % of the growth of the heap. The race detector
// does not change that growth. No other test runs meanwhile, since this one is not parallel, but
// servers of earlier ones may still log: so many entries that some 10 KB do not count.
func TestFootprint(t *testing.T) {
	r := rand.New(rand.NewPCG(44, 44))
	text := func(n int) string { return strings.Repeat("v", n) }
	varied := func() string { return text(r.IntN(40)) }
	list := func() (list []flatProduct) {
		for i := range 10 + r.IntN(100) {
			list = append(list, flatProduct{ID: i, Name: varied(), Text: []byte(varied())})
		}
		return list
	}
	tree := func() any {
		var items []any
		for i := range 5 + r.IntN(40) {
			items = append(items, map[string]any{"id": float64(i), "name": varied(), "tags": []any{varied(), nil}})
		}
		return map[string]any{"items": items, "total": 7.5}
	}
	values := map[string]func() any{
		"array of 20":   func() any { return [20]byte{byte(r.Int())} },
		"array of 200":  func() any { return struct{ Text [200]byte }{[200]byte{byte(r.Int())}} },
		"array of 2 K":  func() any { return struct{ Text [2000]byte }{[2000]byte{byte(r.Int())}} },
		"array of 20 K": func() any { return struct{ Text [20_000]byte }{[20_000]byte{byte(r.Int())}} },
		"numbers":       func() any { return struct{ A, B, C int }{r.Int(), 2, 3} },
		"nil":           func() any { return nil },
		"list":          func() any { return list() },
		"list of pointers": func() any {
			var all []*flatProduct
			for _, p := range list() {
				all = append(all, &p)
			}
			return all
		},
		"tree": tree,
		"map of texts": func() any {
			all := map[string]string{}
			for range 1 + r.IntN(100) {
				all[fmt.Sprint(r.Int())] = varied()
			}
			return all
		},
		"map of numbers": func() any {
			all := map[int]float64{}
			for range 1 + r.IntN(100) {
				all[r.Int()] = 1
			}
			return all
		},
	}
	for _, n := range []int{20, 57, 200, 1100, 2000, 4200, 20_000} {
		values[fmt.Sprint("string of ", n)] = func() any { return text(n) }
		values[fmt.Sprint("bytes of ", n)] = func() any { return []byte(text(n)) }
		values[fmt.Sprint("struct of ", n)] = func() any {
			return flatProduct{r.Int(), text(n / 3), 1, []byte(text(n - n/3)), time.Now()}
		}
		values[fmt.Sprint("pointer to struct of ", n)] = func() any { return &flatProduct{r.Int(), text(n / 3), 1, nil, time.Now()} }
	}
	for name, value := range values {
		for _, tags := range []string{"none", "shared", "own"} {
			if tags != "shared" && !strings.HasPrefix(name, "str") {
				continue // each takes four collections
			}
			m := newMemory(Config{Memory: Memory{Size: 1 << 24}}.WithDefaults())
			m.obey(verdict{open: true})
			n := min(max(100, 1<<19/footprint("", value(), nil)), 2000)
			before := heapAlloc()
			for i := range n {
				var names []string
				switch tags {
				case "shared":
					names = []string{fmt.Sprint("category:", i%50), fmt.Sprint("brand:", i%20)}
				case "own":
					names = []string{fmt.Sprint("product:", i)}
				}
				if !m.put(fmt.Sprint("shop:product:", i), value(), names, m.mark(), time.Hour, 0, nil) {
					t.Fatal(name, ": not kept")
				}
			}
			m.values.store.CleanUp()
			grown, counted := heapAlloc()-before, int64(0)
			for key := range m.values.store.Keys() {
				e, _ := m.values.store.GetEntryQuietly(key)
				counted += int64(e.Weight)
			}
			if ratio := float64(counted) / float64(grown); ratio < 0.85 || ratio > 1.15 {
				t.Errorf("%s, tags %s: counted %.0f bytes per entry of %.0f: %.2f", name, tags, float64(counted)/float64(n), float64(grown)/float64(n), ratio)
			}
			m.close()
		}
	}
}

// Values of any type have a footprint. Cycles end, and fields that their owner may change are left
// out.
func TestFootprintOfAnything(t *testing.T) {
	t.Parallel()
	type node struct {
		Next   *node
		All    []*node
		Hidden map[string]int `json:"-"`
		owned  map[string]int
		Any    any
	}
	cycle := &node{Hidden: map[string]int{"a": 1}, owned: map[string]int{"a": 1}}
	cycle.Next, cycle.Any = cycle, cycle
	for range 100 {
		cycle.All = append(cycle.All, cycle)
	}
	type itself []itself
	loop := itself{nil}
	loop[0] = loop
	for name, value := range map[string]any{
		"a cycle": cycle, "a list in itself": loop, "nil pointer": (*node)(nil), "nil map": map[string]any(nil), "function": func() {}, "channel": make(chan int),
		"nothing": struct{}{}, "arrays": [2][2]any{{1, nil}, {cycle}}, "map of structs": map[[2]string]node{{"a"}: *cycle},
	} {
		if n := footprint("k", value, nil); n < entryBytes || n > 10_000 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}
