package cache

import (
	"fmt"
	"testing"
	"time"
)

// A hit in memory: what each of them costs, and that it allocates nothing.
func BenchmarkMemoryHit(b *testing.B) {
	config := Config{Memory: Memory{Size: 10_000}}.WithDefaults()
	m := newMemory(config)
	b.Cleanup(m.close)
	m.obey(verdict{open: true})
	c := &Cache{config: config, memory: m}
	keys := make([]string, 5_000)
	for i := range keys {
		keys[i] = fmt.Sprint("product:", i)
		m.put(keys[i], "a value", 7, nil, m.mark(), time.Hour)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := remembered[string](c, keys[i%len(keys)], config.Policy); !ok {
			b.Fatal("the value is not there")
		}
		i++
	}
}
