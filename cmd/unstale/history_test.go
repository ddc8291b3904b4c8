package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// journey is the line of a row whose message had no subscribers.
var journey = regexp.MustCompile(`^  journey  written 20[0-9T:.-]+Z, claimed \+[0-9.]+[mµ]?s, unlinked \+[0-9.]+[mµ]?s, published \+[0-9.]+[mµ]?s to 0 receivers, settled \+[0-9.]+[mµ]?s$`)

// history shows when, in which batch and with which keys.
func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	history := func(args ...string) result { return call(t, w.env, append([]string{"history"}, args...)...) }
	if r := history("--entity", "thing"); r.code != exitDone || r.out != "nothing: the journal is empty\nanswer: Nothing is known of such a row: none waits, and the journal has none. If something changed, the write has inserted no row.\n" {
		t.Errorf("%+v", r)
	}
	w.fill(30)
	w.start("--once", "--batch-rows", "10", "--worker", "a worker").wantExit(exitDone)
	w.enqueue(9)
	w.start("--once").wantExit(exitDone)
	r := history("--entity", "thing", "--id", "7", "--since", "1h")
	lines := strings.Split(r.out, "\n")
	if r.code != exitDone || len(lines) != 7 || !strings.Contains(lines[0], "  row 7  thing 7  worker a worker  map ") ||
		!journey.MatchString(lines[1]) || lines[2] != "  key      shop:thing:7" || !strings.Contains(lines[3], "row 37  thing 7") {
		t.Errorf("%+v", r)
	}
	if byKey := history("--key", "shop:thing:7"); !strings.HasPrefix(byKey.out, r.out+"now: not in Redis\nanswer: Not stale: Redis does not hold this key. It was last unlinked ") {
		t.Errorf("by key %+v, by entity %+v", byKey, r)
	}
	if r := history("--entity", "thing", "--limit", "3"); !strings.HasPrefix(r.out, "older ones are left out") || strings.Count(r.out, "key ") != 3 || !strings.Contains(r.out, "thing 9 ") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--entity", "other"}, {"--trace", "none"}, {"--row", "1000"}, {"--key", "shop:thing:none"}} {
		if r := history(args...); r.code != exitDone || !strings.HasPrefix(r.out, "nothing; the journal begins at 20") ||
			strings.Contains(r.out, "unknown: whether Redis evicted") != (args[0] == "--key") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	var found past
	r = history("--row", "30", "--json")
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Found) != 1 || found.More || found.Found[0].Keys[0] != "shop:thing:30" ||
		found.Found[0].Batch == 0 || found.Found[0].Row != 30 || found.Found[0].BornAt == nil || found.Found[0].BornAt.After(time.Now()) {
		t.Errorf("%v: %+v", err, r)
	}
	for want, args := range map[string][]string{
		"of what? give --key": {}, "--id needs --entity": {"--key", "k", "--id", "x"}, "--key is empty": {"--key", ""},
		"--limit 0": {"--entity", "x", "--limit", "0"}, "--since -1s": {"--entity", "x", "--since", "-1s"},
	} {
		if r := history(args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// A key is found by what reached it: a pattern when it was asked for and when it was swept, and a
// set's name. A row is found where it is, settled or not.
func TestHistoryOfAKeyAndARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := `version: 1
lease: 1ms
entities:
  page: {keys: ["shop:page:{id}", "shop:other:{id}"], patterns: ["shop:list:{id}:*", "shop:none:{id}:*"], sets: ["tag:{id}"], repeat: [1h]}
`
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"INSERT INTO cache_outbox (entity, entity_id, trace) VALUES ('page', '7', 'request 9'), ('unknown', '8', '')",
		"INSERT INTO cache_outbox (id, entity, entity_id) VALUES (900, 'page', '9')",
	} {
		if _, err := w.db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	w.start("--once").wantExit(exitDone)
	if _, err := w.db.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (901, 'page', '10')"); err != nil {
		t.Fatal(err)
	}
	row := "  row 1  page 7  worker "
	for args, want := range map[string][]string{
		"--key shop:page:7":     {row, "  journey  written ", "  trace    request 9", "  key      shop:page:7"},
		"--key shop:list:7:x":   {row, "  journey  written ", "  trace    request 9", "  pattern  shop:list:7:*", "  sweep ", "  pattern  shop:list:7:*"},
		"--key tag:7":           {row, "  journey  written ", "  trace    request 9", "  set      tag:7", "  sweep ", "  set      tag:7"},
		"--key shop:list:8:x":   {"nothing; ", "now: not in Redis", "unknown: whether "},
		"--trace request 9":     {row, "  journey  written ", "  trace    request 9", "shop:page:7", "shop:other:7", "shop:list:7:*", "shop:none:7:*", "tag:7"},
		"--row 2":               {"nothing; ", "now: row 2 is a dead letter, see unstale dead list: unknown_entity: "},
		"--entity unknown":      {"nothing; ", "now: row 2 is a dead letter, see unstale dead list: unknown_entity: "},
		"--row 900":             {"  row 900  page 9  worker ", "to 0 receivers", "shop:page:9", "shop:other:9", "shop:list:9:*", "shop:none:9:*", "tag:9", "now: row 900 is delayed until 20"},
		"--row 901":             {"nothing; ", "now: row 901 waits in cache_outbox"},
		"--key tag:9 --limit 1": {"older ones are left out; ", "  sweep ", "  set      tag:9"},
	} {
		flag, rest, _ := strings.Cut(args, " ")
		value, limit, limited := strings.Cut(rest, " --limit ")
		list := []string{"history", flag, value}
		if limited {
			list = append(list, "--limit", limit)
		}
		r := call(t, w.env, list...)
		lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
		if r.code != exitDone || len(lines) < len(want) {
			t.Errorf("%s: %+v", args, r)
			continue
		}
		for i, text := range want {
			if !strings.Contains(lines[i], text) {
				t.Errorf("%s: line %d has not %q:\n%s", args, i, text, r.out)
			}
		}
	}
}

// The current state in Redis is shown if Redis can be asked, and is unknown otherwise.
func TestHistoryLooksAtRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	born := time.UnixMicro(1_700_000_000_123_456).UTC()
	entry := fmt.Sprintf(`{"e":1700000060000,"b":%d,"v":{"price":1}}`, born.UnixMicro())
	raw := fmt.Sprintf(`{"f":2,"e":1700000060000,"b":%d,"c":"msgpack"}`, born.UnixMicro()) + "\n\x81\xa5price\x01"
	for _, c := range []struct {
		url   string
		set   func()
		text  string
		known bool
		born  *time.Time
	}{
		{w.env["REDIS_URL"], func() {}, "now: not in Redis\n", true, nil},
		{w.env["REDIS_URL"], func() { w.redis.Set(t.Context(), "shop:thing:1", entry, 0) },
			"now: in Redis, an entry with the lease time 2023-11-14T22:13:20.123456Z\n", true, &born},
		{w.env["REDIS_URL"], func() { w.redis.Set(t.Context(), "shop:thing:1", "42", 0) }, "now: in Redis, since when is unknown", true, nil},
		{w.env["REDIS_URL"], func() { w.redis.Del(t.Context(), "shop:thing:1"); w.redis.SAdd(t.Context(), "shop:thing:1", "x") },
			"now: in Redis, since when is unknown", true, nil},
		{"", func() {}, "now: unknown: no --redis-url is given\n", false, nil},
		{"redis://127.0.0.1:1/0", func() {}, "now: unknown: ", false, nil},
		{w.env["REDIS_URL"], func() { w.redis.Set(t.Context(), "shop:thing:1", raw, 0) },
			"now: in Redis, an entry with the lease time 2023-11-14T22:13:20.123456Z\n", true, &born},
	} {
		c.set()
		env := maps.Clone(w.env)
		env["REDIS_URL"] = c.url
		if r := call(t, env, "history", "--key", "shop:thing:1"); r.code != exitDone || !strings.Contains(r.out, "row 1  thing 1") || !strings.Contains(r.out, c.text) {
			t.Errorf("%q: %+v", c.text, r)
		}
		var found past
		r := call(t, env, "history", "--key", "shop:thing:1", "--json")
		if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Found) != 1 || (found.Now.InRedis != nil) != c.known ||
			(found.Now.BornAt == nil) != (c.born == nil) || c.born != nil && !found.Now.BornAt.Equal(*c.born) {
			t.Errorf("%q: %v, %+v", c.text, err, r)
		}
	}
}

// The timeline of a row: the number of subscribers is shown, steps are in order, and for rows that
// an older worker settled it is unknown.
func TestHistoryTellsTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hears := w.redis.Subscribe(t.Context(), "cache:invalidate")
	defer hears.Close()
	if _, err := hears.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	var found past
	r := call(t, w.env, "history", "--row", "1", "--json")
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Found) != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	s := found.Found[0]
	for i, times := range [][2]*time.Time{{s.WrittenAt, s.ClaimedAt}, {s.ClaimedAt, s.UnlinkedAt}, {s.UnlinkedAt, s.PublishedAt}, {s.PublishedAt, &s.SettledAt}} {
		if times[0] == nil || times[1] == nil || times[1].Before(*times[0]) {
			t.Errorf("step %d: %v, %v", i, times[0], times[1])
		}
	}
	if s.Receivers == nil || *s.Receivers != 1 {
		t.Errorf("receivers: %+v", r)
	}
	for _, journey := range []string{"NULL", "'x'", "''"} {
		if _, err := w.db.Exec("UPDATE cache_outbox_journal SET journey = " + journey); err != nil {
			t.Fatal(err)
		}
		if r := call(t, w.env, "history", "--key", "shop:thing:1"); !strings.Contains(r.out, "\n  journey  unknown: ") {
			t.Errorf("%s: %+v", journey, r)
		}
	}
}

// An operator whose account is of an earlier version gets what can be read, and the missing grant.
func TestHistoryWithoutGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(20)
	w.start("--once", "--batch-rows", "5").wantExit(exitDone)
	c, err := mysql.ParseDSN(w.env["MYSQL_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := w.db.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	const user = "'unstale_earlier'@'%'"
	grant := func(table string) { t.Helper(); exec("GRANT SELECT ON " + c.DBName + "." + table + " TO " + user) }
	t.Cleanup(func() { _, _ = w.db.Exec("DROP USER " + user) }) // the server is the tests' own
	exec("CREATE USER " + user + " IDENTIFIED BY 'secret'")
	grant("cache_outbox_version")
	want := func(code int, args []string, says ...string) {
		t.Helper()
		c.User, c.Passwd = "unstale_earlier", "secret"
		r := call(t, map[string]string{"MYSQL_DSN": c.FormatDSN()}, args...)
		for _, text := range says {
			if r.code != code || !strings.Contains(r.out+r.err, text) {
				t.Errorf("%q does not say %q: %+v", args, text, r)
			}
		}
	}
	history := []string{"history", "--row", "7"}
	testHistoryUnsummarised(t, w)
	const unread = "the summaries of the journal cannot be read, so all of it is searched"
	want(exitFail, history, "GRANT SELECT ON cache_outbox_journal to this account; docs/accounts.md")
	grant("cache_outbox_journal")
	want(exitDone, history, "shop:thing:7\n", unread, "GRANT SELECT ON cache_outbox_summaries to this account", "which rows are not settled is unknown", "GRANT SELECT ON cache_outbox to this account")
	want(exitDone, append(history, "--json"), `"shop:thing:7"`, `"untold": [`, unread)
	want(exitFail, []string{"status"}, "whether anything is stale is unknown", "GRANT SELECT ON cache_outbox to this account; docs/accounts.md")
	for _, table := range []string{"", "_delayed", "_dead", "_sweeps", "_sweeper", "_control"} {
		grant("cache_outbox" + table)
	}
	want(exitUnknown, []string{"status"}, "whether a worker runs cannot be read", "GRANT SELECT ON cache_outbox_workers to this account", "cache_outbox_source")
	want(exitFail, []string{"audit", "list"}, "GRANT SELECT ON cache_outbox_audit to this account")
	grant("cache_outbox_summaries")
	whole := call(t, w.env, history...)
	before, rest, _ := strings.Cut(whole.out, ", the last ")
	_, after, aged := strings.Cut(rest, " ago") // the age may differ between two calls
	if !aged {
		t.Errorf("it does not report the age of the last UNLINK:\n%s", whole.out)
	}
	want(exitDone, history, before, after)
	if strings.Contains(whole.out, "note: ") {
		t.Errorf("%+v", whole)
	}
}

// testHistoryUnsummarised has a journal of 32,768 batches without a summary: history reports it,
// and a worker that runs once summarizes them.
func testHistoryUnsummarised(t *testing.T, w *world) {
	t.Helper()
	const columns = "worker, row_count, map_version, epoch, beat, hashes, body"
	// old, since a young batch behind a gap waits
	const one = "INSERT INTO cache_outbox_journal (" + columns + ", settled_at) " +
		"SELECT " + columns + ", UTC_TIMESTAMP(6) - INTERVAL 2 MINUTE FROM cache_outbox_journal ORDER BY id LIMIT "
	for n := 1; n < 1<<15; n *= 2 {
		if _, err := w.db.ExecContext(t.Context(), one+fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "batches of the journal have no summary yet"
	ask := func() string { return call(t, w.env, "history", "--key", "shop:nothing").out }
	if got := ask(); !strings.Contains(got, text) {
		t.Errorf("history does not say %q:\n%s", text, got)
	}
	w.start("--once").wantExit(exitDone)
	if got := ask(); strings.Contains(got, text) {
		t.Errorf("after a worker ran once:\n%s", got)
	}
	if _, err := w.db.ExecContext(t.Context(), "DELETE FROM cache_outbox_journal WHERE id > 1000"); err != nil {
		t.Fatal(err)
	}
}
