package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/lab/demo/shopcache"
)

// names is the common prefix of the shop's keys. Package shopcache has their names.
type names string

func newNames(app string) names { return names(app + ":" + env + ":") }

func (n names) full(short string) string { return string(n) + short }

// short returns a key without the common prefix, for display.
func (n names) short(key string) string { return strings.TrimPrefix(key, string(n)) }

// owns reports whether a key, or a pattern, belongs to the demo.
func (n names) owns(key string) bool { return strings.HasPrefix(key, string(n)) }

// itemPage returns the page of a product.
func itemPage(id int) cache.Read { return shopcache.ProductPage(int64(id)) }

// lifetimes are the lifetimes that the map gives to what readers store, by read.
type lifetimes map[string]invalidation.Lifetime

// lifetimesOf returns the lifetimes of a map. Each read of the shop must have one.
func lifetimesOf(m *invalidation.Map) (lifetimes, error) {
	l := lifetimes{}
	for _, r := range m.Reads().All() {
		l[r.Name] = r.Lifetime
	}
	for _, r := range []cache.Read{
		itemPage(1), shopcache.CategoryList(1, 1, "new"), shopcache.Home(), shopcache.ShippingCity("riyadh"), shopcache.Coupon("WELCOME"),
	} {
		if _, found := l[r.Name()]; !found {
			return nil, fmt.Errorf("the map has no read %s, which the demo stores", r.Name())
		}
	}
	return l, nil
}

// ttl returns a TTL within the bounds of the map: values that are filled together must not expire
// together.
func (l lifetimes) ttl(r cache.Read) time.Duration {
	life := l[r.Name()]
	return life.Least + rand.N(life.Most-life.Least+1)
}
