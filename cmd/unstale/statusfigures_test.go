package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// The command has a line for each window, and the same figures in JSON. A share with a miss is
// never 100%. Figures that cannot be read hide nothing else.
func TestStatusShowsFigures(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	schematest.Up(t, env.DB)
	exec := func(query string) {
		t.Helper()
		if _, err := env.DB.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	// An hour ago and more there were stale entries.
	exec(`INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead,
sampled, entry_batches, stale_batches, checked, with_entry, stale, absent, unknown) VALUES
(UNIX_TIMESTAMP() DIV 60 - 1, 'a', 60000, 99999, 99998, 99999, 99999, 0, 3000, 3000, 0, 3000, 3000, 0, 0, 0),
(UNIX_TIMESTAMP() DIV 60 - 90, 'a', 1000, 1000, 0, 1000, 1000, 1, 1000, 100, 10, 1000, 100, 10, 900, 0)`)
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	text := call(t, vars, "status").out
	for _, want := range []string{
		"\nlast hour    99999 invalidations  99.998% within 100ms, 100% within 1s, 100% within 10s, no stale entry in 3000 checked (below 0.1% with 95% confidence)\n",
		"\nlast 24 h    101000 invalidations  99.0% within 100ms, 99.999% within 1s, 99.999% within 10s, 10 stale of 3100 entries checked: about 0.017% of entries (below ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	var out struct {
		Figures []figuresObject
		Error   string `json:"figures_error"`
	}
	read := func() {
		t.Helper()
		out.Figures = nil
		if err := json.Unmarshal([]byte(call(t, vars, "status", "--json").out), &out); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if len(out.Figures) != 3 || out.Figures[2].Window != "30d" || out.Figures[0].Missed100ms != 1 || *out.Figures[0].Within1s != 1 || *out.Figures[0].PerEntry != 0 ||
		out.Figures[1].Stale != 10 || out.Figures[1].Dead != 1 {
		t.Errorf("%+v", out.Figures)
	}
	exec("TRUNCATE cache_outbox_minutes")
	read()
	if f := out.Figures[0]; f.Within100ms != nil || f.PerEntry != nil || f.PerEntryBelow != 1 {
		t.Errorf("%+v", f)
	}
	if text := call(t, vars, "status").out; !strings.Contains(text, "\nlast hour    0 invalidations\n") {
		t.Error(text)
	}
	exec("RENAME TABLE cache_outbox_minutes TO hidden")
	read()
	if text := call(t, vars, "status").out; out.Figures != nil || !strings.Contains(out.Error, "cache_outbox_minutes") ||
		!strings.Contains(text, "\nlast hour    unknown  ") || !strings.Contains(text, "\nwaiting      0\n") {
		t.Errorf("%+v\n%s", out, text)
	}
}

// A worker whose account lacks the table of an upgrade unlinks keys all the same, and status has
// the GRANT.
func TestWorkerWithoutThePrivilegeToCount(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	f.do("REVOKE ALL ON shop.* FROM 'unstale'@'%'")
	rows, err := f.admin.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' AND table_name <> 'cache_outbox_minutes'")
	f.must(err)
	var tables []string
	for rows.Next() {
		var table string
		f.must(rows.Scan(&table))
		tables = append(tables, table)
	}
	f.must(rows.Err())
	for _, table := range tables {
		f.do("GRANT ALL ON shop." + table + " TO 'unstale'@'%'")
	}
	r := f.start()
	r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	f.fill(10)
	r.until("the keys go", func() bool { return f.keys() == 0 && f.count("cache_outbox") == 0 })
	root := map[string]string{"MYSQL_DSN": f.mysql.DSN("shop")}
	testenv.Eventually(t, "status has the note", func() bool {
		r := call(t, root, "status")
		return r.code == exitDone && strings.Contains(r.out, "\nnote: worker ") && strings.Contains(r.out, "invalidations are not counted: ") &&
			strings.Contains(r.out, "GRANT SELECT, INSERT, UPDATE, DELETE ON cache_outbox_minutes")
	})
	if n := f.count("cache_outbox_dead") + f.count("cache_outbox_delayed") + f.count("cache_outbox_minutes"); n != 0 || r.log.has("outage: ") {
		t.Errorf("%d rows, or an outage", n)
	}
}
