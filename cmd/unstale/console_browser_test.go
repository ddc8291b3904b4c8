//go:build browser

package main

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// A row shows on an open page soon after its commit. The page can be paused. A search leads from
// the row's key to its way, by keyboard.
func TestBrowserLive(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	_, b := j.withConsole("--worker", "web-1")
	c := b.chromium(nil)
	c.open("/", 200)
	c.shows("#live-text", "Live")
	c.shows("#says", "nothing is stale")
	c.do("", "evaluate", "window.loaded = true")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', 'live')")
	committed := time.Now()
	c.shows("#recent", "shop:thing:live", "web-1")
	took := time.Since(committed)
	t.Logf("shown %s after the commit", took.Round(time.Millisecond))
	if took > 10*time.Second || c.do("", "evaluate", "window.loaded") != true {
		t.Errorf("after %s, or with a reload", took)
	}
	c.do("#live", "click")
	c.shows("#live-text", "Paused")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', 'meanwhile')")
	b.has("recent", "shop:thing:meanwhile")
	if recent := c.text("#recent"); strings.Contains(recent, "meanwhile") {
		t.Errorf("a paused page shows %s", recent)
	}
	c.accessible()
	c.do("#live", "click")
	c.shows("#recent", "shop:thing:meanwhile")

	c.do("", "press", "/")
	c.do("", "type", "shop:thing:live")
	c.do("", "press", "Enter")
	c.shows("#answer-says", "Not stale: Redis does not hold this key. It was last unlinked ")
	c.shows("#timeline", "thing live", "unlinked +")
	c.accessible()
	j.redisDo("SET other:1 text PX 1000000")
	for _, answer := range []struct{ search, says string }{
		{"thing live", "Not stale by its rows"}, {"1", "Not stale by its rows"}, {"request-1", "Nothing is known of such a row"}, {"other:1", "Nothing invalidates this key"},
	} {
		c.do("#q", "fill", answer.search)
		c.do("#q", "press", "Enter")
		c.shows("#answer-says", answer.says)
		c.accessible()
	}
	c.do("[name=entity]", "fill", "thing")
	c.do("[name=id]", "fill", "7")
	c.do("[name=params]", "fill", `{"x": 1}`)
	c.do("#explain button", "click")
	c.shows("#explained", "shop:thing:7", "The map does not declare x")
	c.accessible()
	c.open("/search", 200)
	c.open("/none", 404)
	c.shows("#error", "404 Not Found", "the console has no page /none")
	c.do("#theme", "click")
	c.do("#theme", "click")
	c.do("", "reload")
	c.shows("#theme", "Theme: dark")
}

// Controls can be reached with the keyboard alone, in both directions, and the focus can be seen.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole("--console-actions")
	w.fill(20)
	id := w.dies("gadget", "1", `{"a": 1}`)
	b.has("recent", "shop:thing:1")
	b.has("dead", "gadget")
	for _, options := range []object{nil, {"viewport": object{"width": 390, "height": 700}}} {
		c := b.chromium(options)
		for _, page := range []string{"/", "/search?q=shop:thing:1", "/dead", "/act/correct?id=" + id} {
			c.open(page, 200)
			for _, key := range []string{"Tab", "Shift+Tab"} {
				for _, problem := range c.do("", "tabs", key).([]any) {
					t.Errorf("%s, %s: %s", page, key, problem)
				}
			}
		}
	}
}

// Without JavaScript, the page shows the same, and the search works.
func TestBrowserWithoutJavaScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole("--console-actions")
	w.enqueue(1)
	b.has("sentence", "nothing is stale")
	c := b.chromium(object{"javaScriptEnabled": false})
	testenv.Eventually(t, "the page shows the row", func() bool { // a page is as it was when it was loaded
		c.do("", "goto", "/?wait=1")
		return strings.Contains(c.text("#recent"), "shop:thing:1")
	})
	c.shows("#says", "nothing is stale")
	if c.do("noscript a", "isVisible") != true {
		t.Error("no link refreshes the page")
	}
	if at := c.text("#recent time >> nth=0"); !strings.HasSuffix(at, " ago") {
		t.Errorf("a time is %q", at)
	}
	if c.do("#live", "isVisible") != false || c.do("#theme", "isVisible") != false {
		t.Error("buttons that need JavaScript show")
	}
	c.do("#q", "fill", "shop:thing:1")
	c.do(".search button", "click")
	c.shows("#answer-says", "Not stale: Redis does not hold this key. It was last unlinked ")
	c.do("", "goto", "/act/pause?for=1h")
	c.do(".confirm [name=name]", "fill", "Ann")
	c.do(".confirm button", "click")
	c.shows("#result", "All workers pause for 1h0m0s.")
}

// A dead letter is corrected and retried. The audit has the person's name. Other actions are seen
// and confirmed too.
func TestBrowserActions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole("--console-actions")
	id := w.dies("thin", "1", `{"n": 1}`)
	w.dies("gadget", "2", nil)
	c := b.chromium(nil)
	c.open("/", 200)
	c.shows("#says", "STALE since")
	c.shows("#dead", "thin", "gadget")
	c.accessible()
	c.do(fmt.Sprintf("[data-dead='%s'] >> text=Correct", id), "click")
	c.shows("#action", "unknown_entity")
	c.accessible()
	c.do("#action [name=set_entity]", "fill", "thing")
	c.do("text=Show what it would do", "click")
	c.shows("#would", "")
	c.shows("#action", "shop:thing:1", "before "+id, "after "+id)
	c.accessible()
	c.do(".confirm [name=name]", "fill", "Ann O'Hara")
	if r := call(t, w.env, "pause", "--until-resumed"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	b.has("workers", "paused")
	c.do("text=Correct 1 dead letter", "click")
	c.shows("#result", "Retried 1 dead letter as corrected.")
	c.accessible()
	c.do("text=See the row", "click")
	c.shows("#answer", "Its keys may be stale")
	if r := call(t, w.env, "resume"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	c.shows("#timeline", "unlinked +") // the page asks again by itself
	c.shows("#answer", "Not stale by its rows")
	if n := w.count("cache_outbox_dead"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	if list := call(t, w.env, "audit", "list", "--action", "dead retry --set"); !strings.Contains(list.out, "Ann O'Hara (console)") {
		t.Errorf("%+v", list)
	}
	c.open("/", 200)
	c.shows("#audit", "Ann O'Hara (console) with account ")

	w.ages()
	c.open("/act/correct?id=9999", 200)
	for _, action := range []struct{ name, fills, result string }{
		{"replay", "since=1h", "Unlinked 1 key"}, {"discard", "reason=unknown_entity", "Discarded 1 dead letter."}, {"retry", "all=1", ""},
		{"pause", "for=1h&reason=deploy", "All workers pause"}, {"pause", "for=2h", ""}, {"resume", "", "All workers resume"}, {"resume", "", ""}, {"correct", "id=" + id, ""},
	} {
		c.open("/act/"+action.name, 200)
		c.open("/act/"+action.name+"?"+action.fills, 200)
		if action.result != "" {
			c.shows(".confirm", "Your name")
			c.do(".confirm [name=name]", "fill", "Ann")
			c.do(".confirm button", "click")
			c.shows("#result", action.result)
			c.accessible()
		}
		if action.name == "pause" {
			c.open("/", 200)
			c.shows("#figures", "Paused")
		}
	}
	id = w.dies("gadget", "3", nil)
	c.open("/search?q=dead+letter+"+id, 200)
	c.shows("#letters", "1 matches.", "gadget")
	c.do("[type=checkbox]", "check")
	c.do("button:text-is('Correct')", "click")
	c.shows("#does", "Puts dead letters back with another entity")
	c.shows("#action", "New entity", "gadget")
	c.accessible()
	c.open("/run/none", 404)
	c.open("/act/none", 404)
}

// Actions are refused without the flag, without a session, without the token of a page, and
// from pages of other origins, even those that know a confirmation.
func TestBrowserRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, off := w.withConsole()
	id := w.dies("gadget", "1", nil)
	c := off.chromium(nil)
	c.open("/", 200)
	c.shows("#dead", "gadget")
	if c.do("a[href*='/act/']", "count") != 0.0 {
		t.Error("links lead to actions")
	}
	c.open("/act/discard?id="+id, 403)
	c.shows("#error", "403 Forbidden", "actions are off: start the worker with --console-actions")

	file := filepath.Join(t.TempDir(), "token")
	writeSecret(t, file, consoleSecret)
	_, b := w.withConsole("--console-actions", "--console-token-file", file)
	c = b.chromium(nil)
	c.known = append(c.known, "status of 401", "status of 403")
	c.open("/act/discard?id="+id, 200)
	c.do("#token", "fill", "wrong")
	c.do("text=Log in", "click")
	c.shows("main", "This is not the token.")
	c.accessible()
	c.do("#token", "fill", consoleSecret)
	c.do("button", "click")
	c.shows("#says", "STALE")
	c.open("/act/discard?id="+id, 200)
	form := url.Values{}
	for _, name := range []string{"args", "token"} {
		form.Set(name, c.do(".confirm [name="+name+"]", "inputValue").(string))
	}
	c.do("", "evaluate", "document.querySelector('.confirm [name=token]').remove()")
	c.do(".confirm [name=name]", "fill", "Ann")
	c.do(".confirm button", "click")
	c.shows("#error", "403 Forbidden", "this confirmation is not one that the page has shown")
	c.accessible()

	// A page of another server on this host is of another origin, and of another site unless it has
	// the same name.
	attacker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s/act/discard"><input name="args" value="%s"><input name="token" value="%s"><button>Win</button></form>`,
			b.base, html.EscapeString(form.Get("args")), html.EscapeString(form.Get("token")))
	}))
	defer attacker.Close()
	sibling := attacker.URL + "/"
	stranger := strings.Replace(sibling, "127.0.0.1", "localhost", 1)
	c.known = append(c.known, sibling, stranger)
	for _, page := range []string{sibling, stranger} {
		c.do("", "goto", page)
		c.do("button", "click")
		c.shows("main", "403 Forbidden", "cross-origin request refused")
		c.accessible()
	}

	c.open("/act/discard?id="+id, 200)
	c.shows(".confirm", "Discard 1 dead letter")
	c.do(".confirm [name=name]", "fill", "Ann")
	c.do("", "forget")
	c.do(".confirm button", "click")
	c.shows("main", "401 Unauthorized", "log in first")
	c.accessible()
	if w.count("cache_outbox_dead") != 1 || w.count("cache_outbox_audit") != 0 {
		t.Error("something was done")
	}
}

// While MySQL, Redis or the worker is stopped, the open page reports it, and it recovers by itself.
func TestBrowserOutage(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	r, b := f.withConsole("--worker", "web-1")
	c := b.chromium(nil)
	c.open("/", 200)
	c.shows("#says", "nothing is stale")
	f.must(f.mysql.Stop(t.Context()))
	c.shows("#says", "unknown: MySQL does not answer in time; check that it runs")
	c.shows("#workers", "which workers MySQL knows is unknown: ", "These workers publish their status in Redis.", "web-1")
	c.shows("#figures", "how many rows wait is unknown: ", "Shown as of ")
	c.shows("#dead", "which rows are dead letters is unknown: ")
	c.accessible()
	c.open("/search?q=shop:thing:1", 200)
	c.shows("#timeline", "The journal is unknown: ")
	c.open("/", 200)
	c.shows("#says", "unknown: MySQL does not answer in time; check that it runs")
	f.must(f.mysql.Restart(t.Context()))
	c.shows("#says", "nothing is stale")
	c.shows("#dead", "No dead letters.")
	f.must(f.server.Stop(t.Context()))
	c.shows("#says", "worker web-1 is kept from working (redis network)")
	c.accessible()
	c.open("/search?q=shop:thing:1", 200)
	c.shows("#entry", "Unknown: ")
	c.open("/", 200)
	f.must(f.server.Restart(t.Context()))
	c.shows("#says", "nothing is stale")
	b.has("recent")
	f.fill(1)
	c.shows("#recent", "shop:thing:1")
	r.signal(syscall.SIGSTOP)
	c.shows("#lost", "does not answer")
	c.shows("#says.unknown", "Unknown: the worker that serves this page has not answered for ")
	r.signal(syscall.SIGCONT)
	c.shows("#says.fresh", "nothing is stale")
	c.shows("#live-text", "Live")
	if c.do("", "evaluate", "document.getElementById('lost').hidden") != true {
		t.Error("the page says that the worker does not answer")
	}
}

// Without an account of an operator, the page shows what is missing.
func TestBrowserWithoutAccount(t *testing.T) {
	t.Parallel()
	_, b := newWorld(t).withBareConsole()
	c := b.chromium(nil)
	c.open("/", 200)
	c.shows("#dead", "set --console-dsn")
	c.accessible()
	c.open("/search?q=shop:thing:1", 200)
	c.open("/search?entity=thing&id=1", 200)
}

// shown returns a text as a page shows it.
func shown(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

// pieces cuts a text, for a field that is short.
func pieces(text string) (list []string) {
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(len(runes), 200)
		list, runes = append(list, string(runes[:n])), runes[n:]
	}
	return list
}

// Hostile texts stay texts in every field of a row, of the audit, of a search and of an action.
// They add no element and run no script, and the page shows them unchanged.
func TestBrowserHostileTexts(t *testing.T) {
	t.Parallel()
	const worker = "<img src=x onerror=alert(1)>"
	j := &judged{world: newWorld(t)}
	_, b := j.withConsole("--console-actions", "--worker", worker)
	id := j.dies("gadget", "1", nil)
	texts := hostile()
	if len(texts) < 200 {
		t.Fatalf("%d texts", len(texts))
	}

	// The boxes of searches and of actions.
	c := b.chromium(nil)
	var pages []object
	kinds := []string{"", "key", "object", "trace", "row"}
	for i, text := range texts {
		search := url.Values{"as": {kinds[i%len(kinds)]}, "wait": {"1"}, "q": {text}, "entity": {text}, "id": {text}, "params": {text}}
		pages = append(pages, object{"path": "/search?" + search.Encode(), "values": object{"q": text, "entity": text, "id": text, "params": strings.TrimSpace(text)}})
		actions := []object{
			{"path": "/act/pause?" + url.Values{"for": {"1h"}, "reason": {text}}.Encode(), "name": text, "values": object{"reason": text, "name": text}},
			{"path": "/act/correct?" + url.Values{"id": {id}, "set_entity": {text}, "set_params": {text}}.Encode(), "values": object{"set_entity": text, "set_params": text}},
			{"path": "/act/retry?" + url.Values{"id": {text}, "entity": {text}, "map_version": {text}, "older_than": {text}}.Encode(), "values": object{"id": text, "entity": text, "map_version": text, "older_than": text}},
			{"path": "/act/replay?" + url.Values{"since": {text}, "entity": {text}, "id": {text}}.Encode(), "values": object{"entity": text, "id": text, "since": text}},
		}
		if i%5 < 2 { // two texts with each harmful one
			pages = append(pages, actions[i%len(actions)])
		}
	}
	for _, wrong := range c.do("", "visit", pages).([]any) {
		t.Error(wrong)
	}

	// Rows in each table, and what operators did.
	insert := func(statement string, args ...any) {
		t.Helper()
		if _, err := j.db.Exec(statement, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	want := []string{worker}
	for _, text := range harmful {
		want = append(want, shown("entity"+text), shown("id"+text), shown("params"+text), shown("trace"+text), shown(text), shown("error"+text))
		insert("INSERT INTO cache_outbox_dead (entity, entity_id, params, trace, reason, error, created_at, first_id, map_version) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), 0, '')",
			"entity"+text, "id"+text, "params"+text, "trace"+text, text, "error"+text)
	}
	all := strings.Join(harmful, " ")
	plain := strings.Join(slices.DeleteFunc(slices.Clone(harmful), func(text string) bool { return shown(text) != text }), " ")
	for _, text := range slices.Concat(pieces(all), pieces(plain)) {
		want = append(want, shown("due"+text), shown("why"+text), shown("who"+text), shown("arguments"+text))
		insert("INSERT INTO cache_outbox_delayed (entity, entity_id, params, created_at, due_at, first_id, reason, error, attempts) VALUES ('thing', ?, NULL, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 0, 'lookup', ?, 1)", "due"+text, "why"+text)
		insert("INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES (?, 'pause', ?, 1)", "who"+text, "arguments"+text)
	}
	for _, text := range pieces(plain) {
		want = append(want, text, "shop:thing:"+text)
		insert("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', ?)", text)
		testenv.Eventually(t, "the row is processed", func() bool { return j.count("cache_outbox") == 0 })
	}
	b.has("recent", "thing")
	c.do("", "goto", "/")
	for _, wrong := range c.do("", "inspect", object{"texts": want}).([]any) {
		t.Error(wrong)
	}

	// A pause by a person with a hostile name.
	c.do("", "goto", "/act/pause?"+url.Values{"for": {"1h"}, "reason": {plain}}.Encode())
	c.do(".confirm [name=name]", "fill", plain)
	c.do(".confirm button", "click")
	c.shows("#result", "All workers pause")
	c.do("", "goto", "/")
	c.shows("#audit", plain[:50])
	c.shows("#figures", plain)
	for _, wrong := range c.do("", "inspect", object{"texts": []string{plain[:190]}}).([]any) {
		t.Error(wrong)
	}
	if _, who, _, _ := j.audited(); !strings.HasPrefix(who, plain[:190]) {
		t.Error(who)
	}
}
