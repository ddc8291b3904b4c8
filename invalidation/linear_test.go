package invalidation_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// largeMaps are maps of n entries, good and bad, in each of the shapes that could make checking one
// look through all others.
func largeMaps() map[string]func(n int) string {
	return map[string]func(int) string{
		"keys and patterns": entries("version: 1\nentities:\n", `  e<i>:
    params: [a]
    keys: ["shop:e<i>:{id}:{a}"]
    patterns: ["shop:e<i>:{a}:*"]
`),
		"sets and tags":        entries("version: 1\nentities:\n", "  e<i>: {sets: [\"set:e<i>:{id}\"], tags: [\"e<i>:{id}\"]}\n"),
		"as one":               entries("version: 1\nentities:\n  e: {keys: [\"{id}\"]}\n", "  e<i>: {params: [a], as: {e: \"{a}\"}}\n"),
		"as the next":          entries("version: 1\nentities:\n", "  e<i>: {params: [a], keys: [\"e<i>:{a}\"], as: {e<next>: \"{a}\"}}\n", "  e<next>: {keys: [\"{id}\"]}\n"),
		"a cycle":              entries("version: 1\nentities:\n", "  e<i>: {as: {e<next>: \"{id}\", e0: \"{id}\"}}\n", "  e<next>: {keys: [\"{id}\"]}\n"),
		"params":               entries("version: 1\nentities: {e: {keys: [\"{id}\"]}}\nparams:\n", "  p<i>: {optional: true}\n"),
		"vars":                 entries("version: 1\nentities: {e: {keys: [\"{id}\"]}}\nvars:\n", "  v<i>: x\n"),
		"one lookup":           entries("version: 1\nparams: {p: {lookup: {by: [id], sql: \"SELECT a, b FROM t WHERE a IN (?)\"}}}\nentities:\n", "  e<i>: {params: [p], keys: [\"e<i>:{p}\"]}\n"),
		"as what is looked up": entries(lookupHead+"  x: {params: [p], as: {e0: \"{p}\"}}\n", "  e<i>: {as: {e<next>: \"{id}\"}}\n", "  e<next>: {keys: [\"{id}\"]}\n"),
		"and from the end":     entries(lookupHead+"  e0: {keys: [\"{id}\"]}\n", "  e<next>: {as: {e<i>: \"{id}\"}}\n", "  x: {params: [p], as: {e<next>: \"{p}\"}}\n"),
		"own lookups":          entries(lookupHead, "  e<i>: {params: [p], lookups: {p: {by: [id], sql: \"SELECT a, b FROM t WHERE a IN (?)\"}}, keys: [\"e<i>:{p}\"]}\n"),
		"lookups in a row":     entries("version: 1\nentities: {e: {params: [p0], keys: [\"{p0}\"]}}\nparams:\n", "  p<i>: {lookup: {by: [p<next>], sql: \"SELECT a, b FROM t WHERE a IN (?)\"}}\n"),
		"names in a lookup":    entries(longLookup, "        '{x<i>}',\n", "        1)\n"),
		"depth of a lookup":    entries(longLookup, "        (SELECT MAX(x LIMIT 1\n", "        1)\n"),
		"with many":            entries("version: 1\nentities: {e: {params: [p], keys: [\"{p}\"]}}\nparams:\n  p:\n    with:\n", "      - p<i>\n"),
		"values by default":    entries("version: 1\nentities: {e: {params: [p], keys: [\"{p}\"]}}\nparams:\n  p:\n    default:\n", "      - p<i>\n"),
		"unknown entities":     entries("version: 1\nentities:\n", "  e<i>: {as: {x<i>: \"{id}\"}}\n"),
		"unknown names":        entries("version: 1\nentities:\n", "  e<i>: {keys: [\"{x}\"]}\n"),
		"unknown fields":       entries("version: 1\n", "e<i>: {keys: [\"{x}\"]}\n"),
		"no quotes":            entries("version: 1\nentities:\n  e:\n    keys:\n", "      - {x}:<i>\n"),
		"in one line":          entries("{version: 1, entities: {e: {keys: [\"{id}\"]}", ", e<i>: {keys: [\"e<i>:{id}\"]}", "}}\n"),
		"broken lines":         entries("version: 1\nentities:\n", "  e<i>: {keys: [\"e<i>:{id}\"]}\n  : ]\n"),
	}
}

const lookupHead = "version: 1\nparams: {p: {lookup: {by: [id], sql: \"SELECT a, b FROM t WHERE a IN (?)\"}}}\nentities:\n"

const longLookup = `version: 1
entities: {e: {params: [p], keys: ["{p}"]}}
params:
  p:
    lookup:
      by: [id]
      sql: |
        SELECT a, b FROM t WHERE a IN (?) AND b IN (
`

// entries writes n entries between a head and a tail. In an entry <i> is its number and <next> that
// of the next one.
func entries(head, entry string, tail ...string) func(n int) string {
	return func(n int) string {
		var b strings.Builder
		b.WriteString(head)
		number := func(text string, i int) {
			b.WriteString(strings.NewReplacer("<i>", strconv.Itoa(i), "<next>", strconv.Itoa(i+1)).Replace(text))
		}
		for i := range n {
			number(entry, i)
		}
		for _, t := range tail {
			number(t, n-1)
		}
		return b.String()
	}
}

// Checking a map with four times as many entries takes four times the work, not sixteen times. Work
// is measured in allocations, since time depends on the machine. Not parallel, since allocations
// are counted for the whole process.
func TestCheckingIsLinear(t *testing.T) {
	const n = 500
	for name, write := range largeMaps() {
		small, large := write(n), write(4*n)
		one, _ := heap(func() error { _, err := invalidation.Parse("map.yaml", []byte(small), nil); return err })
		four, err := heap(func() error { _, err := invalidation.Parse("map.yaml", []byte(large), nil); return err })
		if text := fmt.Sprint(err); len(text) > 300*4*n {
			t.Errorf("%s: %d bytes of faults for %d entries", name, len(text), 4*n)
		}
		if ratio := float64(four) / float64(one); ratio > 6 {
			t.Errorf("%s: %d KiB for %d entries, %d KiB for %d: %.1f times", name, one>>10, n, four>>10, 4*n, ratio)
		}
	}
}

func BenchmarkLargeMaps(b *testing.B) {
	for name, write := range largeMaps() {
		for _, n := range []int{1000, 4000, 16000} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				src := []byte(write(n))
				b.ReportAllocs()
				for b.Loop() {
					_, _ = invalidation.Parse("map.yaml", src, nil)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/entry")
			})
		}
	}
}
