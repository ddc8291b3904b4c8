package doctor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

// familiesOf files names, and lists the families as "name: keys".
func familiesOf(names ...string) (list []string) {
	r := NewReview(nil, nil)
	for _, name := range names {
		r.Note([]keyspace.KeyInfo{{Name: name, TTL: keyspace.NoTTL, Bytes: 10}})
	}
	for _, f := range r.families() {
		list = append(list, fmt.Sprintf("%s: %d", f.Name, f.Keys))
	}
	slices.Sort(list)
	return list
}

// Beyond the limit, families are unknown. Entities with the same names all count as present.
func TestFamiliesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte("version: 1\nentities:\n  product: {keys: [\"shop:{id}\"]}\n  variant: {keys: [\"shop:{id}\"]}\n"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	r := NewReview(m, nil)
	r.Note([]keyspace.KeyInfo{{Name: "shop:1", TTL: keyspace.NoTTL}})
	if absent := r.absent(); len(absent) > 0 {
		t.Errorf("%q have no keys", absent)
	}
	says := func() bool {
		return slices.ContainsFunc(r.Report(keyspace.Walked{All: true}, nil).Findings, func(f Finding) bool { return f.Check == "families" && f.Severity == Unknown })
	}
	for i := range 20 * 20 * 20 {
		if i == 3000 && says() {
			t.Error("it says too early that it cannot tell families apart")
		}
		name := fmt.Sprintf("x:%c:%c:%c", 'a'+i%20, 'a'+i/20%20, 'a'+i/400)
		r.Note([]keyspace.KeyInfo{{Name: name, TTL: keyspace.NoTTL}})
	}
	if !says() {
		t.Error("it does not say that it cannot tell families apart")
	}
}

// Families are distinguished by the parts of names that are not IDs, regardless of the form of the
// IDs.
func TestFamilies(t *testing.T) {
	t.Parallel()
	cities := []string{}
	for i := range 200 {
		word := string(rune('a'+i%26)) + string(rune('a'+i/26))
		cities = append(cities, "shop:city:"+word+":rates", "shop:city:"+word+":zones")
	}
	for _, c := range []struct{ names, want []string }{
		{[]string{"shop:product:1", "shop:product:2", "shop:product:list", "shop:coupon:SAVE10"}, []string{"shop:coupon:*: 1", "shop:product:*: 2", "shop:product:list: 1"}},
		{[]string{"session:6f1c2b9e-0000-4000-8000-000000000000", "plain", ""}, []string{": 1", "plain: 1", "session:*: 1"}},
		{cities, []string{"shop:city:*:rates: 200", "shop:city:*:zones: 200"}},
		{[]string{"a:b:c:d:e:f:g:h:i:j"}, []string{"a:b:c:d:e:f:g:*: 1"}},
	} {
		if got := familiesOf(c.names...); !slices.Equal(got, c.want) {
			t.Errorf("%.5q: got %q, wanted %q", c.names, got, c.want)
		}
	}
}

// A keyspace with only random names does not cost memory for each of them, and none is lost.
func TestFamiliesAreBounded(t *testing.T) {
	t.Parallel()
	r := NewReview(nil, nil)
	word := func(n int) string {
		text := ""
		for range 6 {
			text, n = text+string(rune('a'+n%26)), n*7919/13
		}
		return text
	}
	const many = 100_000
	for i := range many {
		r.Note([]keyspace.KeyInfo{{Name: word(i) + ":" + word(i*31) + ":" + word(i*17) + ":" + word(i*5), TTL: keyspace.NoTTL}})
	}
	keys, families := int64(0), r.families()
	for _, f := range families {
		keys += f.Keys
	}
	if keys != many || len(families) > maxNodes || r.unknown.nodes > 2*maxNodes {
		t.Errorf("%d keys in %d families, %d nodes", keys, len(families), r.unknown.nodes)
	}
}
