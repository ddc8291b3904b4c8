package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func aReadMap() (*cache.ReadMap, *cache.ReadEntry) {
	m := cache.NewReadMap("hash",
		cache.ReadVar{Name: "app", Text: "shop-${REGION:-eu}"},
		cache.ReadVar{Name: "env", Text: "${APP_ENV}", OneOf: []string{"dev", "prod"}})
	return m, m.Entry("product_page", cache.Options{TTL: time.Minute})
}

// The variables of a map come from a function like os.LookupEnv. One that is missing or not allowed
// is an error that names it, and nothing has a key then.
func TestReadMapVariables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  []string
		want string // the values, or a part of the error
	}{
		{[]string{"APP_ENV", "prod"}, "shop-eu,prod"},
		{[]string{"APP_ENV", "prod", "REGION", "us"}, "shop-us,prod"},
		{[]string{"APP_ENV", "prod", "REGION", ""}, "shop-eu,prod"},
		{nil, "APP_ENV is not set"},
		{[]string{"APP_ENV", ""}, "APP_ENV is not set"},
		{[]string{"APP_ENV", "test"}, `the var env of the map is "test": must be one of dev, prod`},
	} {
		m, e := aReadMap()
		err := m.Use(environment(c.env...))
		got := strings.Join(m.Vars(), ",")
		if err == nil && (got != c.want || m.Version() == "" || m.Check() != nil || e.Read("k").Key() != "k") {
			t.Errorf("%q: %q, version %q, %v", c.env, got, m.Version(), m.Check())
		}
		if err != nil && (!strings.Contains(err.Error(), c.want) || got != "," || m.Version() != "" || m.Check() == nil || e.Read("k").Key() != "" || e.Read("k").Err() == nil) {
			t.Errorf("%q: %v, %q, %v", c.env, err, got, e.Read("k"))
		}
	}
}

// Values of the environment change the version, so a reader of another environment is noticed.
func TestReadMapVersion(t *testing.T) {
	t.Parallel()
	versions := map[string]bool{}
	for _, env := range []string{"dev", "prod"} {
		m, _ := aReadMap()
		if err := m.Use(environment("APP_ENV", env)); err != nil {
			t.Fatal(err)
		}
		versions[m.Version()] = true
	}
	if len(versions) != 2 {
		t.Errorf("%v", versions)
	}
}

// A read is fetched by its key, and counted by its name. A read without a key or outside of the
// prefix is loaded each time.
func TestFetchRead(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := cachetest.NewStore(t).Cache(cache.Config{Prefix: "shop-eu:", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	m, e := aReadMap()
	if err := m.Use(environment("APP_ENV", "prod")); err != nil {
		t.Fatal(err)
	}
	loads := 0
	fetch := func(r cache.Read, fail error) error {
		_, err := cache.FetchRead(t.Context(), c, r, func(context.Context) (int, error) { loads++; return loads, fail })
		return err
	}
	failure := errors.New("failed")
	for _, step := range []struct {
		read  cache.Read
		fail  error
		loads int
	}{
		{e.Read("shop-eu:product:42"), nil, 1},
		{e.Read("shop-eu:product:42"), nil, 1},
		{e.Read("shop-eu:product:43", "brand:7"), nil, 2},
		{e.Read("shop-eu:product:43", "brand:7"), nil, 2},
		{e.Read("shop-eu:product:44"), cache.ErrNotFound, 3},
		{e.Read("shop-eu:product:44"), cache.ErrNotFound, 3}, // known
		{e.Read("shop-eu:product:45"), failure, 4},
		{e.Read("shop-us:product:42"), nil, 5},
		{e.Read("shop-us:product:42"), nil, 6},
		{e.Refuse("page", 21), nil, 7},
		{e.Refuse("page", 21), cache.ErrNotFound, 8},
	} {
		if err := fetch(step.read, step.fail); !errors.Is(err, step.fail) || loads != step.loads {
			t.Errorf("%q: %v, %d loads, want %d", step.read.Key(), err, loads, step.loads)
		}
	}
	s := c.Statistics()
	got := s.Reads["product_page"]
	if got.L1Hits != 0 || got.L2Hits != 3 || got.Misses != 3 || got.Errors != 1 || got.Refused != 4 || got.Latencies[len(got.Latencies)-1] != 7 || len(s.Reads) != 1 {
		t.Errorf("%+v", s.Reads)
	}
	if len(s.ReadsVersions) != 1 || s.ReadsVersions[0] != m.Version() {
		t.Errorf("versions %q, want %q", s.ReadsVersions, m.Version())
	}
	if n := strings.Count(log.String(), "value is loaded and not cached"); n != 1 || !strings.Contains(log.String(), `does not begin with Config.Prefix`) {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// A read uses its policy: here a jitter of its own, and the caller's own writes.
func TestReadPolicy(t *testing.T) {
	t.Parallel()
	m, _ := aReadMap()
	e := m.Entry("wide", cache.Options{TTL: 10 * time.Minute, Jitter: 0.5, Stale: -1})
	if err := m.Use(environment("APP_ENV", "prod")); err != nil {
		t.Fatal(err)
	}
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{})
	for n := range 200 {
		if _, err := cache.FetchRead(t.Context(), c, e.Read(fmt.Sprint("wide:", n)), func(context.Context) (int, error) { return n, nil }); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (n int) {
		for i := range 200 {
			if ok, err := c.Has(t.Context(), fmt.Sprint("wide:", i)); ok && err == nil {
				n++
			}
		}
		return n
	}
	store.Advance(5*time.Minute - time.Second)
	if n := left(); n != 200 {
		t.Errorf("%d of 200 live for 5 minutes", n)
	}
	store.Advance(5 * time.Minute)
	if n := left(); n < 50 || n > 150 {
		t.Errorf("%d of 200 live for 10 minutes", n)
	}
	store.Advance(5*time.Minute + 2*time.Second)
	if n := left(); n != 0 {
		t.Errorf("%d of 200 live for 15 minutes", n)
	}
	for _, jitter := range []float64{-0.1, 1} {
		if _, err := cache.NewPolicy(cache.Options{TTL: time.Minute, Jitter: jitter}); err == nil {
			t.Errorf("a jitter of %v is accepted", jitter)
		}
	}
}

func TestReadText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, "a": true, "ä b:*": true, "\xff": false, strings.Repeat("ä", 255): true, strings.Repeat("a", 256): false} {
		if cache.ReadText(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
	id := [16]byte{0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0}
	if got := cache.UUIDTexts([][16]byte{id}); got[0] != "123e4567-e89b-12d3-a456-426614174000" {
		t.Errorf("%q", got)
	}
}
