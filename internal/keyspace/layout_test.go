package keyspace_test

import (
	"maps"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
)

const nodesText = `a1 10.0.0.1:6379@16379,one.example.test myself,master - 0 0 3 connected 0-99 200 [93->-b2] [201-<-c3]
b2 10.0.0.2:6379@16379 master - 0 1763700000000 2 connected 300-16383
c3 :6379@16379 master - 0 1763700000000 7 connected
d4 10.0.0.4:6379@16379 slave a1 0 1763700000000 3 connected
e5 10.0.0.5:6379@16379 master,fail - 1763700000000 1763700000000 7 disconnected 101-110
`

func TestLayout(t *testing.T) {
	t.Parallel()
	masters, homes, told, leaving, err := keyspace.ReadLayout(nodesText, "1.2.3.4:7000")
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a1": "1.2.3.4:7000", "b2": "10.0.0.2:6379", "c3": ":6379"}; !maps.Equal(masters, want) {
		t.Errorf("masters %v, want %v", masters, want)
	}
	for name, c := range map[string]struct{ got, want map[string]int }{
		"homes":   {homes, map[string]int{"a1": 102, "b2": 1}}, // with those on their way
		"told":    {told, map[string]int{"b2": 16084, "e5": 10}},
		"leaving": {leaving, map[string]int{"a1": 1}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s %v, want %v", name, c.got, c.want)
		}
	}
	for _, bad := range []string{
		"a1 10.0.0.1:6379@16379 myself,slave b2 0 0 3 connected\n",
		"a1 10.0.0.1:6379@16379 myself,master - 0 0 3 connected 7-x\n",
		"a1 10.0.0.1:6379@16379 myself,master - 0 0 3 connected 16384\n",
	} {
		if _, _, _, _, err := keyspace.ReadLayout(bad, "1.2.3.4:7000"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzLayout(f *testing.F) {
	f.Add(nodesText)
	f.Fuzz(func(t *testing.T, text string) {
		_, homes, _, leaving, err := keyspace.ReadLayout(text, "a:1")
		for id, n := range leaving {
			if err == nil && n > homes[id] {
				t.Errorf("%d of %d slots leave", n, homes[id])
			}
		}
	})
}
