package main

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// post sends a form, and returns the status and the page after unescaping.
func (b *browser) post(path string, form url.Values, headers ...string) (*http.Response, string) {
	b.t.Helper()
	reply, page := b.ask(http.MethodPost, path, strings.NewReader(form.Encode()), append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
	return reply, html.UnescapeString(page)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="(args|token)" value="([^"]*)">`)

// confirmation returns the form that confirms what a page shows.
func confirmation(page, name string) url.Values {
	form := url.Values{"name": {name}}
	for _, f := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(f[1], html.UnescapeString(f[2]))
	}
	return form
}

// preview returns the page of an action that has all parts, and the form that confirms it.
func (b *browser) preview(action string, in url.Values, parts ...string) url.Values {
	b.t.Helper()
	reply, page := b.ask(http.MethodGet, "/act/"+action+"?"+in.Encode(), nil)
	text := html.UnescapeString(page)
	for _, part := range parts {
		if reply.StatusCode != http.StatusOK || !strings.Contains(text, part) {
			b.t.Fatalf("%s %v: %d, without %q:\n%s", action, in, reply.StatusCode, part, text)
		}
	}
	return confirmation(page, "Ann")
}

// does confirms an action and waits until its page has all parts.
func (b *browser) does(action string, form url.Values, parts ...string) string {
	b.t.Helper()
	reply, page := b.post("/act/"+action, form)
	at := reply.Header.Get("Location")
	if reply.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/run/") {
		b.t.Fatalf("%s: %d %s", action, reply.StatusCode, page)
	}
	testenv.Eventually(b.t, fmt.Sprintf("%s shows %q", at, parts), func() bool {
		code, page := b.get(at)
		page = html.UnescapeString(page)
		for _, part := range parts {
			if code != http.StatusOK || !strings.Contains(page, part) {
				return false
			}
		}
		return true
	})
	return at
}

// audited returns the newest record of the audit.
func (w *world) audited() (action, who, account, arguments string) {
	w.t.Helper()
	if err := w.db.QueryRow("SELECT action, claimed_by, account, arguments FROM cache_outbox_audit ORDER BY at DESC, id DESC LIMIT 1").Scan(&action, &who, &account, &arguments); err != nil {
		w.t.Fatal(err)
	}
	return action, who, account, arguments
}

// dies enqueues a row that becomes a dead letter, and returns its ID.
func (w *world) dies(entity, id string, params any) (letter string) {
	w.t.Helper()
	if _, err := w.db.Exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES (?, ?, ?)", entity, id, params); err != nil {
		w.t.Fatal(err)
	}
	testenv.Eventually(w.t, "a dead letter", func() bool {
		return w.db.QueryRow("SELECT id FROM cache_outbox_dead WHERE entity = ? AND entity_id = ?", entity, id).Scan(&letter) == nil
	})
	return letter
}

// learns gives the worker a map with another entity, and waits until the worker has it.
func (w *world) learns(b *browser, entity string) {
	w.t.Helper()
	text := "version: 1\nentities:\n  thing: {keys: [\"shop:thing:{id}\"]}\n  " + entity + ": {keys: [\"shop:" + entity + ":{id}\"]}\n"
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	b.finds("", "shop:"+entity+":1", "key shop:"+entity+":{id}")
}

// overtaken confirms an action while another operator's statement has locked its rows. It waits
// until the page of the action has all parts.
func (b *browser) overtaken(action string, form url.Values, w *world, statement string, parts ...string) {
	b.t.Helper()
	other, err := w.db.Begin()
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.Exec(statement); err != nil {
		b.t.Fatal(err)
	}
	at := b.does(action, form, "Under way.")
	if err := other.Commit(); err != nil {
		b.t.Fatal(err)
	}
	testenv.Eventually(b.t, fmt.Sprintf("%s shows %q", at, parts), func() bool {
		_, page := b.get(at)
		for _, part := range parts {
			if !strings.Contains(html.UnescapeString(page), part) {
				return false
			}
		}
		return true
	})
}

// Without the flag, the page has no actions and refuses them.
func TestConsoleActionsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole()
	id := w.dies("gadget", "1", nil)
	if body := b.has("dead", "gadget", "unstale dead retry ID"); strings.Contains(body, "/act/") {
		t.Error(body)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if reply, page := b.ask(method, "/act/retry?id="+id, nil); reply.StatusCode != http.StatusForbidden || !strings.Contains(page, "--console-actions") {
			t.Errorf("%s: %d %s", method, reply.StatusCode, page)
		}
	}
	if code, _ := b.get("/panel/actions"); code != http.StatusNotFound {
		t.Errorf("the panel: %d", code)
	}
}

// A dead letter is retried after a person confirms the values that the page has shown. The audit
// has the person's name and the database account. A repeated confirmation does nothing.
func TestConsoleRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole("--console-actions")
	id := w.dies("gadget", "1", nil)
	other := w.dies("thinf", "2", nil)
	dead := b.has("dead", `did you mean "thing"?`, "/act/retry?id="+id, "/act/discard?id="+id, "/act/correct?id="+id, "/act/retry?reason=unknown_entity",
		`<a href="/act/retry?all=1">retry all</a>`, `<a href="/act/discard">discard</a>`, `<a href="/dead">all dead letters</a>`, `<a href="/dead?reason=unknown_entity">`)
	if strings.Contains(dead, "unstale dead") {
		t.Errorf("it names commands beside actions: %s", dead)
	}
	b.has("actions", `<a href="/act/pause">Pause all workers</a>`)
	b.preview("retry", url.Values{}, "Puts dead letters back as they are", "Nothing is done until you confirm it.", "Show what it would do", `name="older_than"`)
	b.preview("retry", url.Values{"id": {"9999"}}, "no dead letter matches")
	b.preview("retry", url.Values{"id": {"x"}}, `"x" is not an ID`)
	b.preview("retry", url.Values{"older_than": {"1"}}, "must be a positive duration")
	b.preview("retry", url.Values{"reason": {"none"}}, "there is no reason")
	b.preview("discard", url.Values{"older_than": {"1h"}}, "These died before 20", "no dead letter matches")
	b.preview("retry", url.Values{"reason": {"unknown_entity"}, "all": {"1"}}, "give one of them")
	b.preview("retry", url.Values{"all": {"1"}}, "Puts back 2 dead letters, due immediately", "gadget", "thinf", `did you mean "thing"?`)
	form := b.preview("retry", url.Values{"id": {id}}, "Puts back 1 dead letter, due immediately", `refused`, "The map would refuse 1 of those shown again.")

	for what, try := range map[string]func() *http.Response{
		"GET":               func() *http.Response { r, _ := b.ask(http.MethodGet, "/act/retry?"+form.Encode(), nil); return r },
		"no token":          func() *http.Response { r, _ := b.post("/act/retry", url.Values{"id": {id}}); return r },
		"of another action": func() *http.Response { r, _ := b.post("/act/discard", form); return r },
		"of another site":   func() *http.Response { r, _ := b.post("/act/retry", form, "Sec-Fetch-Site", "cross-site"); return r },
		"of a sibling":      func() *http.Response { r, _ := b.post("/act/retry", form, "Sec-Fetch-Site", "same-site"); return r },
		"of another origin": func() *http.Response {
			r, _ := b.post("/act/retry", form, "Origin", "http://attacker.example")
			return r
		},
		"in the query":        func() *http.Response { r, _ := b.post("/act/retry?"+form.Encode(), nil); return r },
		"with another method": func() *http.Response { r, _ := b.ask(http.MethodPut, "/act/retry?"+form.Encode(), nil); return r },
		"with another arguments": func() *http.Response {
			changed := url.Values{"args": {"YWxsPTE="}, "token": form["token"]}
			r, _ := b.post("/act/retry", changed)
			return r
		},
		"with a made up token": func() *http.Response {
			r, _ := b.post("/act/retry", url.Values{"args": form["args"], "token": {form.Get("token") + "0"}})
			return r
		},
	} {
		if reply := try(); reply.StatusCode == http.StatusSeeOther || reply.StatusCode == http.StatusOK && what != "GET" {
			t.Errorf("%s: %d", what, reply.StatusCode)
		}
	}
	if n := w.count("cache_outbox_audit"); n != 0 {
		t.Fatalf("%d actions", n)
	}

	if _, err := w.db.Exec("UPDATE cache_outbox_dead SET params = '{}' WHERE id = ?", id); err != nil {
		t.Fatal(err)
	}
	reply, page := b.ask(http.MethodPost, "/act/retry", strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded")
	if reply.StatusCode != http.StatusConflict || !strings.Contains(page, "this has changed since the page showed it") {
		t.Fatalf("%d %s", reply.StatusCode, page)
	}
	w.learns(b, "gadget")
	form = b.preview("retry", url.Values{"id": {id}}, "<code class=\"data\">shop:gadget:1</code>")
	form.Set("name", " ")
	if reply, page := b.post("/act/retry", form); reply.StatusCode != http.StatusBadRequest || !strings.Contains(page, "nothing was done: enter your name, for the audit") {
		t.Errorf("%d %s", reply.StatusCode, page)
	}
	form.Set("name", "Ann O'Hara <ann@shop.example>")
	at := b.does("retry", form, "Retried 1 dead letter.", "/search?as=object&q=gadget+1", "back to the overview")
	testenv.Eventually(t, "the row is settled", func() bool {
		return w.count("cache_outbox_dead WHERE id = "+id)+w.count("cache_outbox_delayed") == 0 && w.count("cache_outbox_journal") == 1
	})
	action, who, account, arguments := w.audited()
	if action != "dead retry" || who != "Ann O'Hara <ann@shop.example> (console)" || !strings.Contains(account, "@") || !strings.Contains(arguments, id) {
		t.Errorf("%s, %s, %s, %s", action, who, account, arguments)
	}
	b.has("audit", "Ann O'Hara <ann@shop.example> (console) <span class=\"dim\">with account ", `Retried dead letters <span class="dim">IDs</span> <code class="data">`+id+"</code>")
	if again := b.does("retry", form); again != at {
		t.Errorf("%s after %s", again, at)
	}
	if code, page := b.get("/run/none"); code != http.StatusNotFound || !strings.Contains(page, "does not know this action") {
		t.Errorf("%d %s", code, page)
	}
	w.ages()
	b.does("discard", b.preview("discard", url.Values{"id": {other}}, "Deletes 1 dead letter for good", "may stay stale"), "Discarded 1 dead letter.")
	if n := w.count("cache_outbox_dead") + w.count("cache_outbox_audit"); n != 2 {
		t.Errorf("%d dead letters and actions", n)
	}
	if _, err := w.db.Exec("INSERT INTO cache_outbox_dead (entity, entity_id, created_at, died_at, attempts, repeated, reason, error, map_version, first_id) " +
		"SELECT 'old', '1', NOW(6), UTC_TIMESTAMP(6) - INTERVAL 1 HOUR + INTERVAL 2 SECOND, 1, 0, 'unknown_entity', '', '', 0"); err != nil {
		t.Fatal(err)
	}
	within := url.Values{"newer_than": {"1h"}}
	form = b.preview("discard", within, "Deletes 1 dead letter for good", "These died since 20")
	testenv.Eventually(t, "an hour is over", func() bool {
		_, page := b.get("/act/discard?" + within.Encode())
		return strings.Contains(page, "no dead letter matches")
	})
	b.does("discard", form, "Discarded 1 dead letter.")
}

// A dead letter is corrected: the map checks it before, and the row is settled after. Parameters
// stay byte for byte.
func TestConsoleCorrect(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap("version: 1\nentities:\n  thing: {params: [n], keys: [\"shop:thing:{id}:{n}\"]}\n  plain: {keys: [\"shop:plain:{id}\"]}\n")
	_, b := j.withConsole("--console-actions")
	id := j.dies("thing", "1", `{"m": "</textarea><script>"}`)
	b.preview("correct", url.Values{}, "IDs <input", "Puts dead letters back with another entity or other parameters")
	b.preview("correct", url.Values{"id": {"9999"}}, "no dead letter matches")
	b.preview("correct", url.Values{"id": {id}}, "\n"+`{"m": "</textarea><script>"}`+"</textarea>", "missing_parameter", `data-dead="`+id)
	b.preview("correct", url.Values{"id": {id}, "set_entity": {"thing"}, "set_params": {`{"m": "</textarea><script>"}`}}, "nothing is corrected")
	for want, in := range map[string][2]string{
		"the running map refuses the row as corrected: missing_parameter": {"thing", "{}"}, "unknown_entity": {"nonsense", ""}, "something follows the JSON": {"thing", `{"n": 1}}`},
		"entity: ": {strings.Repeat("x", 200), ""},
	} {
		if form := b.preview("correct", url.Values{"id": {id}, "set_entity": {in[0]}, "set_params": {in[1]}}, want); form.Has("token") {
			t.Errorf("%s can be confirmed", want)
		}
	}
	const exact = "{\"n\": [18446744073709551616,\n 1.10], \"m\":{\"<&>\": [[1]]}}"
	in := url.Values{"preview": {"1"}, "id": {id}, "set_entity": {"thing"}, "set_params": {strings.ReplaceAll(exact, "\n", "\r\n")}} // as browsers send it
	reply, raw := b.ask(http.MethodPost, "/act/correct", strings.NewReader(in.Encode()), "Content-Type", "application/x-www-form-urlencoded")
	page := html.UnescapeString(raw)
	if reply.StatusCode != http.StatusOK || !strings.Contains(page, "shop:thing:1:18446744073709551616") || strings.Contains(raw, "<script>") {
		t.Fatalf("%d %s", reply.StatusCode, page)
	}
	form := confirmation(raw, "Ann")
	j.exec("UPDATE cache_outbox_dead SET params = '{}' WHERE id = " + id)
	if reply, page := b.post("/act/correct", form); reply.StatusCode != http.StatusConflict || !strings.Contains(page, "this has changed since") {
		t.Fatalf("%d %s", reply.StatusCode, page)
	}
	reply, raw = b.ask(http.MethodPost, "/act/correct", strings.NewReader(in.Encode()), "Content-Type", "application/x-www-form-urlencoded")
	b.does("correct", confirmation(raw, "Ann"), "Retried 1 dead letter as corrected.", "See the row")
	testenv.Eventually(t, "the row is settled", func() bool { return j.count("cache_outbox_journal") == 1 && j.count("cache_outbox_delayed") == 0 })
	b.finds("", "shop:thing:1:1.10", "It was last unlinked")
	action, who, _, arguments := j.audited()
	var kept struct{ Params string }
	if err := json.Unmarshal([]byte(arguments), &kept); err != nil || action != "dead retry --set" || who != "Ann (console)" || kept.Params != exact {
		t.Errorf("%v: %s, %s, %s", err, action, who, arguments)
	}
	if n := j.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters, status %d", n, reply.StatusCode)
	}
	id = j.dies("thing", "2", nil)
	b.overtaken("correct", b.preview("correct", url.Values{"id": {id}, "set_entity": {"plain"}, "set_params": {""}}, "Puts back 1 dead letter with entity plain, due immediately."), j.world,
		"DELETE FROM cache_outbox_dead", "nothing was done: this has changed since the page showed it")
}

// Dead letters are listed page by page, by a filter, and those that it chooses are corrected
// together. The map is asked about each. The texts of links lead to the list.
func TestConsoleDeadLetters(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap("version: 1\nentities:\n  thing: {params: [n], keys: [\"shop:thing:{id}:{n}\"]}\n")
	_, b := j.withConsole("--console-actions")
	j.pauses("--reason", "test", "--until-resumed")
	j.exec(`INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, reason, error, map_version, first_id)
SELECT 'thng', seq.n, IF(n % 50 = 7, NULL, '{"n": 1}'), NOW(6), 'unknown_entity', '', 'm', 0 FROM (WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 120) SELECT n FROM c) AS seq`,
		`INSERT INTO cache_outbox_dead (entity, entity_id, created_at, reason, error, map_version, first_id) VALUES ('<b>', '%', NOW(6), 'lookup_failed', '', 'm', 0)`)
	link := regexp.MustCompile(`<a rel="next" href="([^"]*)">Older ones</a>`)
	seen, at := map[string]bool{}, "/dead?entity=thng"
	for pages := 1; at != ""; pages++ {
		_, page := b.get(at)
		if !strings.Contains(page, `<p id="total">120 match.`) || !strings.Contains(page, "did you mean &#34;thing&#34;?") || strings.Contains(page, "lookup_failed</span>") || pages > 3 {
			t.Fatalf("%s: %s", at, page)
		}
		for _, id := range regexp.MustCompile(`name="id" value="(\d+)"`).FindAllStringSubmatch(page, -1) {
			if seen[id[1]] {
				t.Errorf("%s is on two pages", id[1])
			}
			seen[id[1]] = true
		}
		at = ""
		if next := link.FindStringSubmatch(page); next != nil {
			at = html.UnescapeString(next[1])
		}
	}
	if len(seen) != 120 {
		t.Errorf("%d letters", len(seen))
	}
	if _, page := b.get("/dead"); !strings.Contains(page, `<p id="total">121 match.`) || !strings.Contains(page, `href="/act/retry?all=1"`) || strings.Contains(page, "<b>") {
		t.Error(page)
	}
	if code, page := b.get("/dead?older_than=x"); code != http.StatusBadRequest || !strings.Contains(page, "must be a positive duration") {
		t.Errorf("%d %s", code, page)
	}
	if _, page := b.get("/dead?entity=%25"); !strings.Contains(page, `<p id="total">0 match.`) {
		t.Error(page)
	}
	reply, _ := b.ask(http.MethodGet, "/search?q=Dead+letter+3", nil)
	if to := reply.Header.Get("Location"); to != "/dead?id=3" {
		t.Errorf("%d %s", reply.StatusCode, to)
	}
	if _, page := b.get("/dead?id=3"); !strings.Contains(page, `<p id="total">1 matches.`) || !strings.Contains(page, `data-dead="3"`) {
		t.Error(page)
	}

	chosen := url.Values{"entity": {"thng"}}
	b.preview("correct", chosen, "New entity <input", "The newest of 120.")
	b.preview("correct", url.Values{"id": {"3"}, "set_entity": {"thin"}}, `the running map refuses the row as corrected: unknown_entity`)
	chosen.Set("set_entity", "thing")
	form := b.preview("correct", chosen, "Puts back 120 dead letters with entity thing, due immediately.", "before 120", "after 120", "shop:thing:120:1", "The map refuses 1 of those shown as corrected.")
	b.does("correct", form, "Retried 117 dead letters as corrected.", "the running map refuses 3 dead letters as corrected, the first: missing_parameter")
	if dead, back := j.count("cache_outbox_dead WHERE entity = 'thng' AND params IS NULL"), j.count("cache_outbox_delayed WHERE entity = 'thing'"); dead != 3 || back != 117 {
		t.Errorf("%d dead letters, %d put back", dead, back)
	}
	b.has("audit", "Corrected a dead letter", `<span class="dim">entity before</span> <code class="data">thng</code>`)
	chosen.Set("set_params", `{"n": 2}`)
	b.does("correct", b.preview("correct", chosen, `with entity thing and parameters {"n": 2}, due immediately.`), "Retried 3 dead letters as corrected.")
	if n := j.count("cache_outbox_dead"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	off := bareConsole(t, j.consoleAccount(), j.env["REDIS_URL"])
	if _, page := off.get("/dead"); !strings.Contains(page, `<p id="total">1 matches.`) || strings.Contains(page, "checkbox") {
		t.Error(page)
	}
}

// Workers pause for a time and resume. Behind a proxy, the audit has the name that the proxy sends,
// and a confirmation is only for the person who saw the page.
func TestConsolePause(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, file, consoleSecret)
	w := newWorld(t)
	_, b := w.withConsole("--console-actions", "--console-user-header", "X-Forwarded-User", "--console-proxy-secret-file", file)
	as := func(name string) *browser {
		other := *b
		other.headers = []string{"X-Forwarded-User", name, "X-Unstale-Proxy-Secret", consoleSecret}
		return &other
	}
	ann, long := as("ann"), strings.Repeat("n", 300)
	ann.preview("resume", nil, "nothing is paused")
	ann.preview("pause", nil, "Makes all workers stop claiming rows", "Show what it would do")
	ann.preview("pause", url.Values{"for": {"-1m"}}, "must be a positive duration")
	ann.preview("pause", url.Values{"for": {"1m"}, "reason": {strings.Repeat("x", 501)}}, "must have at most 500")
	pause := url.Values{"for": {"1h"}, "reason": {"<b>moving"}}
	testenv.Eventually(t, "the worker is listed", func() bool {
		_, page := ann.get("/act/pause?" + pause.Encode())
		return strings.Contains(page, "All workers (1) stop")
	})
	form := ann.preview("pause", pause, "within about a second, for 1h0m0s", "The audit records ann and the database account")
	if reply, page := as("eve").post("/act/pause", form); reply.StatusCode != http.StatusForbidden {
		t.Errorf("%d %s", reply.StatusCode, page)
	}
	if reply, _ := b.post("/act/pause", form); reply.StatusCode != http.StatusForbidden {
		t.Errorf("without the proxy: %d", reply.StatusCode)
	}
	as(long).does("pause", as(long).preview("pause", pause), "All workers pause for 1h0m0s.")
	if _, who, _, _ := w.audited(); who != long[:200]+" (console)" {
		t.Error(who)
	}
	as(long).does("resume", as(long).preview("resume", nil), "All workers resume")
	ann.does("pause", form, "All workers pause for 1h0m0s.")
	w.enqueue(1)
	if action, who, _, arguments := w.audited(); action != "pause" || who != "ann (console)" || !strings.Contains(arguments, "moving") {
		t.Errorf("%s %s %s", action, who, arguments)
	}
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "by ann (console)") || strings.Contains(r.out, "no record") {
		t.Errorf("%+v", r)
	}
	again := ann.preview("pause", pause, "All workers pause already, since ", "The new pause replaces that one.")
	ann.does("resume", ann.preview("resume", nil, "All workers claim rows again. They are paused since ", ": <b>moving"), "All workers resume; they were paused since")
	if reply, page := ann.post("/act/pause", again); reply.StatusCode != http.StatusConflict || !strings.Contains(page, "this has changed since") {
		t.Errorf("%d %s", reply.StatusCode, page)
	}
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 })
}

// A replay shows what it will do, runs without its page, and unlinks and publishes the keys again.
func TestConsoleReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "token")
	writeSecret(t, file, consoleSecret)
	_, b := w.withConsole("--console-actions", "--console-token-file", file)
	if reply, _ := b.post("/act/replay", url.Values{"since": {"1h"}}, "Sec-Fetch-Dest", "empty"); reply.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the console's token: %d", reply.StatusCode)
	}
	b.post("/login", url.Values{"token": {consoleSecret}})
	w.fill(3)
	testenv.Eventually(t, "the rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	w.setKeys(3)
	b.preview("replay", nil, "Show what it would do")
	b.preview("replay", url.Values{"since": {"1h"}, "all": {"1"}}, "give one of them")
	b.preview("replay", url.Values{"since": {"1h"}, "id": {"1"}}, "an ID needs its entity")
	b.preview("replay", url.Values{"since": {"1h"}, "entity": {"thing' OR '1'='1"}, "id": {"*"}}, "0 keys of 0 rows")
	form := b.preview("replay", url.Values{"since": {"1h"}}, "Unlinks again, and publishes on cache:invalidate, 3 keys of 3 rows in ", "settled since 20")
	// since then, almost an hour has passed
	if _, err := w.db.Exec("UPDATE cache_outbox_journal SET settled_at = settled_at - INTERVAL 1 HOUR + INTERVAL 1 SECOND"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the rows are too old for another replay", func() bool {
		_, page := b.get("/act/replay?since=1h")
		return strings.Contains(page, "0 keys of 0 rows")
	})
	if n := w.keys(); n != 3 {
		t.Fatalf("%d keys", n)
	}
	heard := w.redis.Subscribe(t.Context(), "cache:invalidate")
	defer heard.Close()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.does("replay", form, "Unlinked 3 keys of 3 rows in ", "back to the overview")
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys", n)
	}
	testenv.Eventually(t, "a message", func() bool {
		m, err := heard.ReceiveMessage(t.Context())
		return err == nil && strings.Contains(m.Payload, "shop:thing:3")
	})
	if action, who, _, arguments := w.audited(); action != "replay over" || who != "Ann (console)" || !strings.Contains(arguments, `"keys": 3`) && !strings.Contains(arguments, `"keys":3`) {
		t.Errorf("%s %s %s", action, who, arguments)
	}
	if page := b.has("audit", "Ended a replay", `<span class="dim">keys</span> <code class="data">3</code>`); strings.Contains(page, ">0<") {
		t.Error(page)
	}
}

// Two workers serve the console. If two people confirm an action at the same time, one is done, and
// the page of the other one reports that nothing was done. A confirmation runs on one worker only.
func TestConsoleTwoWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "token")
	writeSecret(t, file, consoleSecret)
	var b [2]*browser
	for i := range b {
		_, b[i] = w.withConsole("--console-actions", "--console-token-file", file)
		b[i].post("/login", url.Values{"token": {consoleSecret}})
	}
	w.fill(1)
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 })
	replay := b[0].preview("replay", url.Values{"all": {"1"}}, "1 key of 1 row")
	b[0].does("replay", replay, "Unlinked 1 key of 1 row")
	b[1].does("replay", replay, "this confirmation was used before")
	if n := w.count("cache_outbox_audit WHERE action = 'replay'"); n != 1 {
		t.Errorf("%d replays", n)
	}

	long := url.Values{"for": {"1h"}}
	for _, race := range []struct {
		block   string // the statements of both actions
		actions [2]string
	}{
		{"INSERT INTO cache_outbox_control (name, who, reason) VALUES ('pause', '', '')", [2]string{"pause", "pause"}}, // and rolled back
		{"SELECT 1 FROM cache_outbox_control WHERE name = 'pause' FOR UPDATE", [2]string{"pause", "resume"}},
	} {
		var at [2]string
		block, err := w.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = block.Rollback() }()
		var forms [2]url.Values
		for i := range forms {
			forms[i] = b[i].preview(race.actions[i], long)
		}
		if _, err := block.Exec(race.block); err != nil {
			t.Fatal(err)
		}
		var confirmed sync.WaitGroup
		for i, form := range forms {
			confirmed.Go(func() {
				reply, _ := b[i].post("/act/"+race.actions[i], form)
				at[i] = reply.Header.Get("Location")
			})
		}
		testenv.Eventually(t, "both wait for the row", func() bool {
			waiting := 0 // MySQL lists no statement while one of any database is not UTF-8 (3854)
			err := w.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%cache_outbox_control%FOR UPDATE%'").Scan(&waiting)
			return err == nil && waiting == 2
		})
		if err := block.Rollback(); err != nil {
			t.Fatal(err)
		}
		confirmed.Wait()
		done := 0
		for i := range b {
			var page string
			testenv.Eventually(t, "the action is over", func() bool { _, page = b[i].get(at[i]); return !strings.Contains(page, "Under way.") })
			switch worked, refused := strings.Contains(page, `id="result"`), strings.Contains(page, "nothing was done: this has changed since the page showed it"); {
			case worked == refused:
				t.Error(page)
			case worked:
				if action, _, _, _ := w.audited(); action != race.actions[i] {
					t.Errorf("%s in the audit, not %s", action, race.actions[i])
				}
				done++
			}
		}
		if done != 1 {
			t.Errorf("%v: %d were done", race.actions, done)
		}
	}
	if n := w.count("cache_outbox_audit"); n != 4 {
		t.Errorf("%d actions", n)
	}
}

// A long action continues while its page is left, and shows how far it is. A stop of the worker
// ends it after a transaction. An account of Redis that may not unlink cannot replay.
func TestConsoleLongAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.redis.Do(t.Context(), "acl", "setuser", "reader", "on", ">secret", "+@all", "-unlink", "-publish", "~*", "&*").Err(); err != nil {
		t.Fatal(err)
	}
	w.env["UNSTALE_CONSOLE_DSN"], w.env["UNSTALE_CONSOLE_REDIS_URL"] = w.env["MYSQL_DSN"], strings.Replace(w.env["REDIS_URL"], "redis://", "redis://reader:secret@", 1)
	r, b := w.withBareConsole("--console-actions")
	b.preview("replay", url.Values{"all": {"1"}}, "the Redis account of the console lacks permissions: ACL SETUSER ... +publish +unlink: docs/console.md")
	if err := w.redis.Do(t.Context(), "acl", "setuser", "reader", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	b.preview("replay", url.Values{"all": {"1"}}, "ACL SETUSER ... &cache:invalidate +publish +subscribe +unlink: docs/console.md")
	if _, err := w.db.Exec("INSERT INTO cache_outbox_dead (entity, entity_id, created_at, died_at, attempts, repeated, reason, error, map_version, first_id) " +
		"SELECT 'gadget', seq.n, NOW(6), NOW(6), 1, 0, 'unknown_entity', '', '', 0 FROM (WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 500) SELECT n FROM c) AS seq"); err != nil {
		t.Fatal(err)
	}
	form := b.preview("discard", url.Values{"reason": {"unknown_entity"}}, "Deletes 500 dead letters for good", "The newest of 500.")
	w.dies("gadget", "later", nil) // it is left out
	// 200 letters, which are one transaction, take most of a second
	if _, err := w.db.Exec("CREATE TRIGGER slow BEFORE DELETE ON cache_outbox_dead FOR EACH ROW SET @slow = SLEEP(0.004)"); err != nil {
		t.Fatal(err)
	}
	at := b.does("discard", form, "Under way. ", "00 dead letters of 500 ", "You can leave this page")
	if reply, _ := b.ask(http.MethodGet, at, nil); reply.Header.Get("Refresh") != "1" {
		t.Errorf("%v", reply.Header)
	}
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	left, done := w.count("cache_outbox_dead"), 0
	if err := w.db.QueryRow("SELECT SUM(row_count) FROM cache_outbox_audit").Scan(&done); err != nil || done < 200 || done == 500 || left+done != 501 {
		t.Errorf("%v: %d discarded, %d left", err, done, left)
	}
	if _, err := w.db.Exec("DROP TRIGGER slow"); err != nil {
		t.Fatal(err)
	}
	w.ages()
	_, b = w.withConsole("--console-actions")
	b.overtaken("discard", b.preview("discard", url.Values{"reason": {"unknown_entity"}}, fmt.Sprintf("Deletes %d dead letters", left)), w,
		"DELETE FROM cache_outbox_dead ORDER BY id LIMIT 1", fmt.Sprintf("Discarded %d of %d dead letters; the others were retried or discarded meanwhile.", left-1, left))
	last := w.dies("gadget", "last", nil)
	b.overtaken("retry", b.preview("retry", url.Values{"id": {last}}, "Puts back 1 dead letter"), w,
		"DELETE FROM cache_outbox_dead", "nothing was done: this has changed since the page showed it")
}
