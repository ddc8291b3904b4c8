package demo_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
)

// shopcache.go is what `unstale map generate` makes of mapping.yaml.
func TestShopcacheIsUpToDate(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile(shippedMap)
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("mapping.yaml", src, func(name string) (string, bool) {
		if name == "APP_ENV" {
			return "dev", true
		}
		return "", false
	})
	if err != nil {
		t.Fatal(err)
	}
	want, err := maptool.GenerateGo(maptool.NamesOf(m), "shopcache", "mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("shopcache/shopcache.go")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; run: go run ./cmd/unstale map generate --package shopcache -o lab/demo/shopcache/shopcache.go mapping.yaml", err)
	}
}
