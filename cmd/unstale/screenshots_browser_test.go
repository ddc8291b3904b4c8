//go:build browser

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// The images of docs/console.md are of this test, with example data. UPDATE_SCREENSHOTS=1 writes
// them.
func TestBrowserScreenshots(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	shop, err := filepath.Abs("../../mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	j.env["UNSTALE_MAP"] = shop
	for i := 1; i < 180; i++ { // minutes ago
		rows, late, dead := 400+i*37%300+i%50*20, 0, 0
		if i > 60 && i < 70 {
			late = rows / 3
		}
		if i == 100 {
			dead = 40
		}
		j.exec(fmt.Sprintf("INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead, waiting, oldest_ms, entities) "+
			`VALUES (UNIX_TIMESTAMP() DIV 60 - %d, 'A', 10, %d, %d, %d, %d, %d, %d, %d, '{"product": [%d, %d], "coupon": [%d, %[11]d]}')`,
			i, rows, rows-late-i%3, rows-late/3, rows, dead, 2+i%7+late/4, 40+i%9+late*12, rows-rows/9, rows-late/3-rows/9, rows/9))
	}
	_, b := j.withConsole("--console-actions", "--worker", "web-1")
	j.start("--worker", "web-2")
	b.has("workers", "web-1", "web-2")
	for i := range 12 {
		j.exec(fmt.Sprintf(`INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES ('product', '%d', '{"category_id": [%d]}', 'request-%d')`, 40+i*7%12, i%5, 7300+i*41))
		testenv.Eventually(t, "the row is processed", func() bool { return j.count("cache_outbox") == 0 })
	}
	j.exec(`INSERT INTO cache_outbox (entity, entity_id) VALUES ('coupon', 'SUMMER'), ('wishlist', '7'), ('wishlist', '9')`,
		`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('coupon', 'AUTUMN', UTC_TIMESTAMP(6) + INTERVAL 3 HOUR)`)
	b.has("dead", "wishlist")
	b.has("recent", "SUMMER")
	c := b.chromium(object{"viewport": object{"width": 1200, "height": 1160}})
	c.open("/", 200)
	c.shows("#says", "STALE since")
	folder := t.TempDir()
	if os.Getenv("UPDATE_SCREENSHOTS") != "" {
		folder = "../../docs"
	}
	picture := func(name string, options object) {
		options["path"] = filepath.Join(folder, name)
		c.do("", "screenshot", options)
	}
	c.do("", "setViewportSize", object{"width": 1200, "height": 780})
	picture("console.png", object{})
	c.open("/search?q=zahraah:prod:product:42", 200)
	c.do("", "setViewportSize", object{"width": 1200, "height": 615})
	picture("console-search.png", object{})
}
