package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

const consoleSecret = "a secret of the console"

// A browser asks the console of a worker, keeps cookies and follows no redirects.
type browser struct {
	t       testing.TB
	base    string
	http    *http.Client
	headers []string // of every request, given as alternating names and values
}

// withConsole starts a worker with a console that has the operator's accounts.
func (w *world) withConsole(args ...string) (*running, *browser) {
	w.t.Helper()
	w.env["UNSTALE_CONSOLE_DSN"], w.env["UNSTALE_CONSOLE_REDIS_URL"] = w.env["MYSQL_DSN"], w.env["REDIS_URL"]
	return w.withBareConsole(args...)
}

// withBareConsole is like withConsole, without accounts.
func (w *world) withBareConsole(args ...string) (*running, *browser) {
	w.t.Helper()
	r := w.start(append([]string{"--console", "127.0.0.1:0"}, args...)...)
	var at []string
	r.until("the console is served", func() bool { at = consoleURL.FindStringSubmatch(r.log.String()); return at != nil })
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &browser{t: w.t, base: at[1], http: &http.Client{
		Jar: jar, Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	w.t.Cleanup(b.http.CloseIdleConnections)
	return r, b
}

var consoleURL = regexp.MustCompile(`"url":"(http://127\.0\.0\.1:\d+)/"`)

// ask sends a request with headers, given as alternating names and values.
func (b *browser) ask(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	headers = append(slices.Clone(b.headers), headers...)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply, string(text)
}

func (b *browser) get(path string, headers ...string) (int, string) {
	b.t.Helper()
	reply, text := b.ask(http.MethodGet, path, nil, headers...)
	return reply.StatusCode, text
}

// has waits until a panel has a text, after unescaping.
func (b *browser) has(panel string, parts ...string) (body string) {
	b.t.Helper()
	testenv.Eventually(b.t, fmt.Sprintf("panel %s has %q", panel, parts), func() bool {
		var code int
		code, body = b.get("/panel/" + panel)
		body = html.UnescapeString(body)
		for _, part := range parts {
			if code != http.StatusOK || !strings.Contains(body, part) {
				return false
			}
		}
		return true
	})
	return body
}

// events reads server-sent events of a page until find returns true.
func (b *browser) events(find func(name, data string) bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/events", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	reply, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, 1<<20)
	var name, data string
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name, data = line[len("event: "):], ""
		case strings.HasPrefix(line, "data: "):
			data += line[len("data: "):] + "\n"
		case line == "" && name != "":
			if find(name, html.UnescapeString(data)) {
				return
			}
			name = ""
		}
	}
	b.t.Fatalf("the events end: %v", lines.Err())
}

// The page has the same first line as `unstale status`, and shows a row soon after its commit.
// Names with markup stay text. A browser may load only the page's own files.
func TestConsole(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	_, b := j.withConsole("--worker", "web-1")
	j.fill(3)
	b.has("recent", "thing <code class=\"data\">3</code>", "shop:thing:3", "web-1")
	b.has("nines", "Within 100 ms", "100%", `<td class="number">3</td>`)
	b.has("charts", `<svg class="chart"`, "3 rows invalidated and 0 dead letters in three hours", " UTC, 3 min: 3 invalidated 0 dead letters")
	b.has("entities", `<td>thing</td><td class="number">3</td><td class="number">100%</td>`)
	b.has("charts", "Rows that wait, at most: at most ", "The oldest row waits, at most: at most ")
	hostile := `<script>alert("1")</script>` + "\u202e'"
	j.exec(`INSERT INTO cache_outbox (entity, entity_id) VALUES ('gadget', '` + strings.ReplaceAll(hostile, "'", "''") + `')`)
	j.says("stale", "1 dead letter (unknown_entity: 1)")
	minute := len("STALE since 15:04") // the second may differ: it is counted back from now
	b.has("sentence", j.last.Says[:minute], `data-level="stale"`)
	if _, body := b.get("/panel/dead"); strings.Contains(body, "<script") || !strings.Contains(body, `&lt;script&gt;alert(\&#34;1\&#34;)&lt;/script&gt;\u202e&#39;`) {
		t.Errorf("%s", body)
	}
	reply, page := b.ask(http.MethodGet, "/", nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := reply.Header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, file := range regexp.MustCompile(`(?:src|href)="([^"#]*)"`).FindAllStringSubmatch(page, -1) {
		if code, _ := b.get(html.UnescapeString(file[1])); code != http.StatusOK || !strings.HasPrefix(file[1], "/") {
			t.Errorf("%s: %d", file[1], code)
		}
	}
	if strings.Contains(page, "style=") || strings.Contains(page, "<style") || regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(page) || regexp.MustCompile(` on[a-z]+=`).MatchString(page) {
		t.Error("the page has inline code or styles")
	}
	var committed time.Time
	b.events(func(name, data string) bool {
		if name != "recent" {
			return false
		}
		if committed.IsZero() { // the stream has begun
			j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', 'live')")
			committed = time.Now()
		}
		return strings.Contains(data, "shop:thing:live")
	})
	t.Logf("shown %s after the commit", time.Since(committed))
}

// Without a token, the page is only for this host: not for a name that was rebound to it, not for
// other sites in its browser, and not through a proxy.
func TestConsoleOnLoopback(t *testing.T) {
	t.Parallel()
	_, b := newWorld(t).withBareConsole()
	port := b.base[strings.LastIndex(b.base, ":"):]
	for _, c := range []struct {
		code    int
		headers []string
	}{
		{200, nil}, {200, []string{"Host", "localhost:1234"}}, {200, []string{"Host", "[::1]" + port}},
		{200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}}, // a link
		{421, []string{"Host", "attacker.example" + port}}, {421, []string{"Host", "localhost.attacker.example"}}, {421, []string{"Host", "192.0.2.1" + port}},
		{403, []string{"X-Forwarded-For", "192.0.2.1"}}, {403, []string{"Forwarded", "for=192.0.2.1"}}, {403, []string{"X-Forwarded-Proto", "https"}}, {403, []string{"X-Real-IP", "192.0.2.1"}},
		{403, []string{"CF-Connecting-IP", "192.0.2.1"}}, {403, []string{"True-Client-IP", "192.0.2.1"}}, {403, []string{"X-Client-IP", "192.0.2.1"}}, {403, []string{"Via", "1.1 proxy"}},
		{403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}}, {403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
	} {
		for _, path := range []string{"/", "/panel/dead", "/static/console.js"} {
			if code, body := b.get(path, c.headers...); code != c.code {
				t.Errorf("%s, %q: %d %.200s", path, c.headers, code, body)
			}
		}
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://attacker.example"}} {
		if reply, _ := b.ask(http.MethodPost, "/", nil, headers...); reply.StatusCode != http.StatusForbidden {
			t.Errorf("%q: %d", headers, reply.StatusCode)
		}
	}
	for _, path := range []string{"/panel/none", "/none", "/static/none", "/static/..%2fconsole.go"} {
		if code, _ := b.get(path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// With a token, a person enters it once. The cookie is out of reach of scripts and of other sites,
// and cannot be made up.
func TestConsoleToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	writeSecret(t, file, consoleSecret+"\n")
	r, b := newWorld(t).withBareConsole("--console-token-file", file)
	for path, want := range map[string]int{"/": 303, "/panel/dead": 303, "/events": 303, "/login": 200, "/static/console.css": 200} {
		if code, _ := b.get(path); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := b.get("/panel/dead", "Sec-Fetch-Dest", "empty"); code != http.StatusUnauthorized {
		t.Errorf("a script: %d", code)
	}
	form := func(token string, headers ...string) *http.Response {
		reply, _ := b.ask(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {token}}.Encode()), append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
		return reply
	}
	for _, wrong := range []string{"", consoleSecret + "!", consoleSecret[1:]} {
		if reply := form(wrong); reply.StatusCode != http.StatusUnauthorized || reply.Header.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d", wrong, reply.StatusCode)
		}
	}
	if reply := form(consoleSecret, "Sec-Fetch-Site", "cross-site"); reply.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %d", reply.StatusCode)
	}
	for _, made := range []string{"9999999999.00", "", ".", "9999999999"} {
		if code, _ := b.get("/", "Cookie", "unstale_session="+made); code != http.StatusSeeOther {
			t.Errorf("%q: %d", made, code)
		}
	}
	reply := form(consoleSecret, "X-Forwarded-Proto", "https")
	if got := reply.Header.Get("Set-Cookie"); !strings.Contains(got, "; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict") {
		t.Errorf("%s", got)
	}
	form(consoleSecret)
	if code, page := b.get("/"); code != http.StatusOK || !strings.Contains(page, "Log out") {
		t.Errorf("%d %s", code, page)
	}
	if reply, _ := b.ask(http.MethodPost, "/logout", nil); reply.StatusCode != http.StatusSeeOther {
		t.Errorf("%d", reply.StatusCode)
	}
	if code, _ := b.get("/"); code != http.StatusSeeOther {
		t.Errorf("after logging out: %d", code)
	}
	form(consoleSecret)
	another := "another secret of the console"
	writeSecret(t, file, another)
	if code, _ := b.get("/"); code != http.StatusSeeOther {
		t.Errorf("a session of the token before: %d", code)
	}
	if reply := form(consoleSecret); reply.StatusCode != http.StatusUnauthorized {
		t.Errorf("the token before: %d", reply.StatusCode)
	}
	form(another)
	if err := os.Remove(file); err != nil { // as while it is replaced
		t.Fatal(err)
	}
	if code, _ := b.get("/"); code != http.StatusOK {
		t.Errorf("a session of the new token: %d", code)
	}
	if r.log.has(consoleSecret) || r.log.has(another) {
		t.Error("the log has the token")
	}
	if !r.log.has("a person logged in to the console") || !r.log.has("a login to the console failed: the token was wrong") {
		t.Error("the log has no login")
	}
}

// Behind a proxy, a request needs the proxy's secret and a user.
func TestConsoleProxy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, file, consoleSecret)
	_, b := newWorld(t).withBareConsole("--console-user-header", "X-Forwarded-User", "--console-proxy-secret-file", file)
	for _, headers := range [][]string{nil, {"X-Forwarded-User", "alice"}, {"X-Unstale-Proxy-Secret", consoleSecret}, {"X-Forwarded-User", "alice", "X-Unstale-Proxy-Secret", "another"}} {
		if code, _ := b.get("/", headers...); code != http.StatusForbidden {
			t.Errorf("%q: %d", headers, code)
		}
	}
	code, page := b.get("/", "Host", "unstale.example", "X-Forwarded-User", "<b>alice", "X-Unstale-Proxy-Secret", consoleSecret)
	if code != http.StatusOK || !strings.Contains(page, `<span class="user">&lt;b&gt;alice</span>`) || strings.Contains(page, consoleSecret) {
		t.Errorf("%d %s", code, page)
	}
}

// A console that other hosts could reach needs a token or a proxy's secret.
func TestConsoleAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, short := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "short")
	writeSecret(t, good, consoleSecret)
	writeSecret(t, short, "short")
	for _, c := range []struct {
		want string // of the error; "": none
		args []string
	}{
		{"reachable from other hosts, so the console needs a token", []string{"--console", "0.0.0.0:9118"}},
		{"reachable from other hosts", []string{"--console", ":9118"}},
		{"reachable from other hosts", []string{"--console", "localhost.example:9118"}},
		{"must be host:port", []string{"--console", "9118"}},
		{"has 5 bytes: must have at least 16", []string{"--console", ":9118", "--console-token-file", short}},
		{"a user header needs a proxy secret", []string{"--console", ":9118", "--console-user-header", "X-User"}},
		{"set one kind", []string{"--console", ":9118", "--console-token-file", good, "--console-user-header", "X-User", "--console-proxy-secret-file", good}},
		{`user header "host": a request cannot have it`, []string{"--console", ":9118", "--console-user-header", "host", "--console-proxy-secret-file", good}},
		{`user header ":path": a request cannot have it`, []string{"--console", ":9118", "--console-user-header", ":path", "--console-proxy-secret-file", good}},
		{`user header "Te": a request cannot have it`, []string{"--console", ":9118", "--console-user-header", "Te", "--console-proxy-secret-file", good}},
		{"no such file", []string{"--console", ":9118", "--console-token-file", good + "x"}},
		{"console-dsn", []string{"--console", "localhost:9118", "--console-dsn", "nonsense"}},
		{"", []string{"--console", ":9118", "--console-token-file", good}},
		{"", []string{"--console", ":9118", "--console-user-header", "X-User", "--console-proxy-secret-file", good}},
		{"", []string{"--console", "[::1]:9118"}},
	} {
		r := call(t, w.env, append([]string{"config"}, c.args...)...) // the same check, without a worker
		if (r.code == exitUsage) != (c.want != "") || !strings.Contains(r.err, c.want) || strings.Contains(r.err+r.out, consoleSecret) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	w.start("--console", "0.0.0.0:0").wantExit(exitUsage)
}

// Without an account of an operator, the page shows what the worker knows, and what is missing.
func TestConsoleWithoutAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(1)
	r, b := w.withBareConsole()
	b.has("sentence", "unknown: this page has no account of MySQL; the worker of this process reports no problem; it uses map ", "; set --console-dsn")
	b.has("workers", "The worker of this process reports no problem; it uses map ")
	b.has("figures", "as this worker knows it", "how many rows wait is unknown: the console has no MySQL account of an operator; set --console-dsn")
	b.has("dead", "which rows are dead letters is unknown: the console has no MySQL account")
	var sessions int
	if err := w.db.QueryRow("SELECT COUNT(*) FROM performance_schema.session_connect_attrs JOIN performance_schema.threads USING (processlist_id) " +
		"WHERE attr_name = 'unstale_worker' AND attr_value = 'console' AND processlist_db = DATABASE()").Scan(&sessions); err == nil && sessions > 0 {
		t.Errorf("the console has %d sessions", sessions)
	}
	for _, order := range []struct {
		args []string
		says string
	}{{[]string{"pause", "--until-resumed"}, "is paused, as all workers were at its last look: rows wait; it uses map "}, {[]string{"resume"}, "reports no problem; it uses map "}} {
		if r := call(t, w.env, order.args...); r.code != exitDone {
			t.Fatalf("%+v", r)
		}
		b.has("sentence", "the worker of this process "+order.says)
		b.has("workers", "The worker of this process "+order.says)
	}
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.has("sentence", ", since it refuses the map's file as it is now, or cannot read it: unstale map check; ")
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
}

// Old entries are listed with what to do, the newest first. Their keys are data.
func TestConsoleFound(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.exec(`INSERT INTO cache_outbox_stale (found_at, worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, unlinked_us, after_ms, ttl_ms, held, repaired)
VALUES (UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE, 'w', 'shop:thing:1', 17, 'thing', '1', '', 'e', 1, 1, 2, 1000, 0, 0, 1)`)
	j.exec(`INSERT INTO cache_outbox_shadow (id, cache_key, tags, entities, outcome, process, leased_at, loaded_at)
VALUES (REPEAT('a', 20), '<b>:thing:2', '[]', '["thing"]', 'no_row', 'web<1>', '2026-01-02 03:04:05', UTC_TIMESTAMP(6))`)
	_, b := j.withConsole("--worker", "web-1")
	b.has("found", "forgotten row", "<b>:thing:2", "no row has named the key since 2026-01-02 03:04:05 UTC. Rows of thing reach it. Process web<1> noticed it. What to do: find a write of these entities",
		"stale entry", "shop:thing:1", "The worker has unlinked it.", "row 17")
	if _, body := b.get("/panel/found"); strings.Index(body, "forgotten row") > strings.Index(body, "stale entry") || strings.Contains(body, "<b>") {
		t.Errorf("%s", body)
	}
	const search = "/search?wait=1&as=key&q=%3Cb%3E:thing:2"
	if _, body := b.get(search); !strings.Contains(body, `id="old"`) || !strings.Contains(body, "no row has named the key since") || strings.Contains(body, "differs from the database") {
		t.Errorf("%s", body)
	}
	j.says("fresh", fresh)
	if !j.has("differs") {
		t.Errorf("%+v", j.last)
	}

	lease := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := j.redis.Set(t.Context(), "<b>:thing:2", fmt.Sprintf(`{"e":%d,"b":%d,"v":1}`, time.Now().UnixMilli(), lease.UnixMicro()), 0).Err(); err != nil {
		t.Fatal(err)
	}
	b.has("sentence", `data-level="stale"`, "the cached value of <b>:thing:2 differs from the database, and no row explains it; unstale map who KEY; ",
		"docs/operations.md#differences", `<a href="#found">Old entries found</a>`)
	if _, body := b.get(search); !strings.Contains(body, `data-level="stale"`) || !strings.Contains(body, " ago and differs from the database. ") {
		t.Errorf("%s", body)
	}
}

var saysSentence = regexp.MustCompile(`(?s)<p id="says".*?</span><span>(.*?)</span></p>`)

// sentence returns the first sentence of the page.
func (b *browser) sentence() string {
	b.t.Helper()
	_, body := b.get("/panel/sentence")
	found := saysSentence.FindStringSubmatch(body)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}
