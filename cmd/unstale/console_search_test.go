package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// find searches, and returns the page after unescaping.
func (b *browser) find(as, text string) string {
	b.t.Helper()
	code, page := b.get("/search?" + url.Values{"as": {as}, "q": {text}, "wait": {"1"}}.Encode())
	if code != http.StatusOK {
		b.t.Fatalf("%q: %d %s", text, code, page)
	}
	return html.UnescapeString(page)
}

// finds waits until a search has all parts.
func (b *browser) finds(as, text string, parts ...string) {
	b.t.Helper()
	page := ""
	defer func() {
		if b.t.Failed() {
			b.t.Log(page)
		}
	}()
	testenv.Eventually(b.t, fmt.Sprintf("the search for %q has %q", text, parts), func() bool {
		page = b.find(as, text)
		for _, part := range parts {
			if !strings.Contains(page, part) {
				return false
			}
		}
		return true
	})
}

// A search shows whether a key is stale and why, from the rows that wait, the journal, the map and
// Redis.
func TestConsoleSearch(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap("version: 1\nentities:\n  thing: {keys: [\"shop:thing:{id}\"], patterns: [\"shop:things:{id}:*\"]}\n  later: {keys: [\"shop:later:{id}\"], repeat: [10m]}\n")
	_, b := j.withConsole("--worker", "web-1")
	b.has("workers", "web-1")
	reader := j.reader("web-9")
	load := func(key string) {
		t.Helper()
		if _, err := cache.Fetch(t.Context(), reader, key, func(context.Context) (string, error) { return "value", nil }, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.finds("", "shop:thing:1", "Not stale: Redis does not hold this key. The journal has no invalidation of it", `thing <code class="data">1</code>`, "key shop:thing:{id}")
	j.exec("INSERT INTO cache_outbox (entity, entity_id, trace) VALUES ('thing', '1', 'request-1')")
	b.finds("", "shop:thing:1", "Not stale: Redis does not hold this key. It was last unlinked ", "for row 1 (thing 1)", "→ published +", "to 1 receiver", "reported as evicted by web-9")
	load("shop:thing:1")
	b.finds("", "shop:thing:1", "Not stale: it was loaded ", ", after it was last invalidated. It was last unlinked ", "(lease time)", "It expires in ")
	b.finds("", "thing 1", "Not stale by its rows: the keys of all were unlinked, the last ", "for row 1 (thing 1). None waits.", `<code class="data">shop:things:1:*</code>`)
	b.finds("", "request-1", "Not stale by its rows", "Searched for as a trace", `<code class="data">shop:thing:1</code>`)
	b.finds("", "1", "Not stale by its rows", "Searched for as the ID of a row")
	b.finds("key", "shop:things:1:x", "Not stale: Redis does not hold this key. It was last unlinked ", "pattern shop:things:{id}:*")

	j.redisDo("SET shop:thing:2 text")
	b.finds("", "shop:thing:2", "No row has named this key since the journal begins (which begins ", "the write has inserted no row", "It does not expire: it stays until it is invalidated.")
	j.redisDo("SET other text PX 100000")
	b.finds("key", "other", "Nothing invalidates this key: no entity of the map reaches it")
	j.redisDo("SET shop:thing:1 text")
	b.finds("key", "shop:thing:1", "Unknown: it is not an entry of package cache")
	j.redisDo(fmt.Sprintf(`SET shop:thing:1 {"b":%d,"v":1}`, time.Now().Add(-time.Hour).UnixMicro()))
	b.finds("key", "shop:thing:1", "Stale: it was loaded 60 min ago, before it was last invalidated.")
	j.redisDo("SET lock:hold:{shop:thing:1} 1 PX 100000")
	b.finds("key", "shop:thing:1", "no reader may store it (tombstone)")

	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('later', '1')")
	b.finds("key", "shop:later:1", "Delayed row 1 (later 1) is due in ", "Not stale: Redis does not hold this key. It was last unlinked")
	j.pauses("--reason", "test")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', '2')")
	b.finds("key", "shop:thing:2", "May be stale: row 3 (thing 2) waits in cache_outbox for ", "and has not unlinked it yet.")
	b.finds("object", "thing 2", "Its keys may be stale: row 3 (thing 2) waits in cache_outbox")
	b.finds("row", "3", "Its keys may be stale: row 3 is in cache_outbox_outbox")
	b.finds("trace", "none", "Nothing is known of such a row: none waits, and the journal (which begins ")
	j.must(call(t, j.env, "resume"))
	b.finds("key", "shop:thing:2", "Not stale: Redis does not hold this key. It was last unlinked ")

	_, page := b.get("/search?" + url.Values{"entity": {"thing"}, "id": {"7"}, "params": {`{"x": 1}`}}.Encode())
	if page = html.UnescapeString(page); !strings.Contains(page, ">shop:thing:7</code>") || !strings.Contains(page, "The map does not declare x.") {
		t.Error(page)
	}
	_, page = b.get("/search?" + url.Values{"entity": {"thin"}, "id": {"7"}}.Encode())
	if page = html.UnescapeString(page); !strings.Contains(page, "the map has no entity thin; did you mean \"thing\"?") {
		t.Error(page)
	}
}

// harmful are texts that would do harm as HTML, SQL, a glob, a template, an event or a header.
var harmful = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</code></td><b>`, `</title><script>`, `javascript:alert(1)`,
	`<!--`, `]]>`, `&lt;b&gt;`, `{{.}}`, `${7*7}`, `' OR '1'='1`, `'; DROP TABLE cache_outbox; --`, `" UNION SELECT 1`, `*`, `?`, `[a-z]`, `\*`, `\`, `%`, `_`, `%00`, `%2e%2e/`,
	"a\nevent: dead\ndata: x", "a\r\n\r\nb", "\x00", "\x1b[31m", "\u202eabc", "\u2028", "\ufeff", "é", "日本語", "👩‍👩‍👧", "a\tb", " a ", "../../etc/passwd", "//evil.example", "style=\"x\"", "`x`", "0", "-1", "1e9", "null",
}

// hostile returns texts with each of harmful, alone and within others.
func hostile() (list []string) {
	for _, text := range harmful {
		for _, wrap := range []string{"%s", "shop:%s", "%s%[1]s", "x'%s", `x"%s`} {
			list = append(list, fmt.Sprintf(wrap, text))
		}
	}
	return list
}
