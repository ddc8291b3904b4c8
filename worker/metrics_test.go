package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// series returns the values of a metric by its labels, as they are written.
func series(t *testing.T, r *running, name string) map[string]string {
	t.Helper()
	rec := httptest.NewRecorder()
	r.Metrics().Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	found := map[string]string{}
	for line := range strings.Lines(rec.Body.String()) {
		if labels, ok := strings.CutPrefix(line, name+"{"); ok {
			labels, value, _ := strings.Cut(labels, "} ")
			found[labels] = strings.TrimSpace(value)
		}
	}
	return found
}

func wantSeries(t *testing.T, r *running, name string, want map[string]string) {
	t.Helper()
	if got := series(t, r, name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, wanted %v", name, got, want)
	}
}

const oneEntity = "version: 1\npublish: {channel: \"cache:invalidate\"}\nentities:\n  %s: {keys: [\"shop:%s:{id}\"]}\n"

// Rows are counted by the entities of the current map, each from the start, and otherwise as
// unknown: text of an application is not a label. Reserved entities appear with their first row. A reload removes the series of removed entities,
// and of the old map version.
func TestMetricsOfTheMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fmt.Sprintf(oneEntity, "first", "first"))
	r := w.worker(worker.Config{GaugeSchedule: "@every 1h"})
	version := func() map[string]string { return map[string]string{`version="` + r.maps.Map().Version() + `"`: "1"} }
	wantSeries(t, r, "unstale_reads_info", map[string]string{})
	wantSeries(t, r, "unstale_entity_rows_total", map[string]string{`entity="first"`: "0", `entity="unknown"`: "0"})
	wantSeries(t, r, "unstale_map_info", version())
	w.enqueue(outbox.Invalidation{Entity: "first", ID: "1"}, outbox.Invalidation{Entity: "first", ID: "2"}, outbox.Invalidation{Entity: "nobody", ID: "3"},
		outbox.Invalidation{Entity: "unstale/key", ID: "shop:any"})
	r.start(t)
	rows := func(labels string) func() bool {
		return func() bool { return fmt.Sprint(series(t, r, "unstale_entity_rows_total")) == labels }
	}
	testenv.Eventually(t, "rows", rows(`map[entity="first":2 entity="unknown":1 entity="unstale/key":1]`))

	w.writeMap(fmt.Sprintf(oneEntity, "second", "second"))
	r.maps.Reload()
	testenv.Eventually(t, "the new map", rows(`map[entity="second":0 entity="unknown":1 entity="unstale/key":1]`))
	testenv.Eventually(t, "its version", func() bool {
		return fmt.Sprint(series(t, r, "unstale_map_info")) == fmt.Sprint(version())
	})
	for _, ttl := range []string{"1m", "2m"} { // which the map's version does not contain
		w.writeMap(fmt.Sprintf(oneEntity, "second", "second") + "reads: {second: {key: \"shop:second:{second_id}\", ttl: " + ttl + "}}\n")
		r.maps.Reload()
		testenv.Eventually(t, "the fingerprint of its reads", func() bool {
			reads := map[string]string{`version="` + r.maps.Map().Reads().Version() + `"`: "1"}
			return len(r.maps.Map().Reads().All()) == 1 && fmt.Sprint(series(t, r, "unstale_reads_info")) == fmt.Sprint(reads)
		})
	}
	wantSeries(t, r, "unstale_map_info", version())
	w.writeMap("nonsense")
	r.maps.Reload()
	testenv.Eventually(t, "a refusal", func() bool { return metric(t, r, "unstale_map_file_differs") == 1 })
	w.writeMap(fmt.Sprintf(oneEntity, "second", "second"))
	r.maps.Reload()
	testenv.Eventually(t, "its end", func() bool { return metric(t, r, "unstale_map_file_differs") == 0 })
}

// Rows are late since they were inserted; since they became visible as well, where a look that did
// not find them says more. Repeats and rows that were scheduled are not late.
func TestLateness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.Replace(plainMap, `keys: ["shop:thing:{id}"]`, `keys: ["shop:thing:{id}"], repeat: [1ms]`, 1))
	r := w.worker(worker.Config{})
	before := time.Now().Add(-time.Second)
	r.drain(t) // finds nothing
	w.enqueue(things(2)...)
	w.exec("UPDATE cache_outbox SET created_at = created_at - INTERVAL 1 HOUR")
	w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '7', UTC_TIMESTAMP())")
	w.listen()
	for rows := 0; rows < 5; { // with the repeats
		rows += r.drain(t).Claimed
	}
	since := time.Since(before).Seconds()
	if n, sum := metric(t, r, "unstale_insert_to_unlink_seconds_count"), metric(t, r, "unstale_insert_to_unlink_seconds_sum"); n != 2 || sum < 2*3600 {
		t.Errorf("%v rows after %v seconds, wanted 2 after an hour each", n, sum)
	}
	if n, sum := metric(t, r, "unstale_visible_to_unlink_seconds_count"), metric(t, r, "unstale_visible_to_unlink_seconds_sum"); n != 2 || sum > 2*since {
		t.Errorf("%v rows after %v seconds, wanted 2 after less than %v each", n, sum, since)
	}
	if at := metric(t, r, "unstale_last_settle_timestamp_seconds"); at < float64(before.Unix()) || at > float64(time.Now().Add(time.Minute).Unix()) {
		t.Errorf("last settled at %v", at)
	}
	if n := metric(t, r, "unstale_message_receivers"); n != 1 {
		t.Errorf("%v heard the last message", n)
	}
	for _, call := range []string{`unstale_mysql_call_seconds_count{kind="claim"}`, `unstale_mysql_call_seconds_count{kind="settle"}`,
		`unstale_redis_call_seconds_count{kind="unlink"}`, `unstale_redis_call_seconds_count{kind="publish"}`} {
		if n := metric(t, r, call); n < 2 || n > 50 {
			t.Errorf("%s is %v", call, n)
		}
	}
	for name, kinds := range map[string]int{"unstale_mysql_call_seconds_count": 8, "unstale_redis_call_seconds_count": 6} {
		if n := len(series(t, r, name)); n != kinds {
			t.Errorf("%s has %d kinds, wanted %d from the start", name, n, kinds)
		}
	}
}

// wantStalled checks that rows make no progress for a reason, and the age of the locked rows.
func wantStalled(t *testing.T, r *running, reason, text string, least, most float64) {
	t.Helper()
	for _, other := range []string{"commit", "held", "behind"} {
		if got := metric(t, r, `unstale_stalled{reason="`+other+`"}`) == 1; got != (other == reason) {
			t.Errorf("stalled for %s: %t, wanted it for %q", other, got, reason)
		}
	}
	if age := metric(t, r, "unstale_oldest_held_age_seconds"); age < least || age > most {
		t.Errorf("held for %v, wanted %v to %v", age, least, most)
	}
	r.Health().Up(false) // as a turn of the loop does; the note of a worker that starts has no reason
	if why := r.Health().Note().StallError; (why == "") != (text == "") || !strings.Contains(why, text) {
		t.Errorf("stalled: %s, wanted %q", why, text)
	}
}

// Rows that another session has locked are reported when no worker can be processing them any
// longer, until they are gone.
func TestMetricsOfAHeldRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '3', UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)")
	w.enqueue(things(2)...)
	w.exec("UPDATE cache_outbox SET created_at = created_at - INTERVAL 1 HOUR WHERE id = 1")
	wantStalled := func(reason, text string, least, most float64) {
		t.Helper()
		wantStalled(t, r, reason, text, least, most)
	}
	r.Prove(t.Context())
	wantStalled("", "", 0, 0)
	r.ListedEarlier(time.Minute)
	r.Prove(t.Context())
	wantStalled("behind", "2 rows of cache_outbox, the oldest 1, have waited for 1h0m", 0, 0)
	if behind := metric(t, r, "unstale_behind_seconds"); behind < 3600 || behind > 7200 {
		t.Errorf("behind by %v", behind)
	}
	holder, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'held'"); err != nil {
		t.Fatal(err)
	}
	w.exec("DELETE FROM cache_outbox_delayed")
	r.Prove(t.Context())
	wantStalled("held", "2 rows of cache_outbox, the oldest 1, have waited for 1h0m", 3600, 7200)
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	w.exec("DELETE FROM cache_outbox WHERE id = 1")
	r.Prove(t.Context())
	wantStalled("held", "row 2 of cache_outbox has waited for", 12, 3600)
	w.exec("DELETE FROM cache_outbox")
	r.Prove(t.Context())
	wantStalled("", "", 0, 0)
	if behind := metric(t, r, "unstale_behind_seconds"); behind > 1800 {
		t.Errorf("behind by %v without rows", behind)
	}
}

// A row that claims pass over is reported as held although rows behind it are late as well, and are
// free. Free rows that claims pass over wait for their turn if another worker has heavy rows.
func TestMetricsOfARowThatIsPassedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.enqueue(things(4)...)
	holder, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'held' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	r.Prove(t.Context())
	w.exec("DELETE FROM cache_outbox WHERE id = 2")
	r.Prove(t.Context())
	r.ListedEarlier(time.Minute)
	r.Prove(t.Context())
	wantStalled(t, r, "held", "row 1 of cache_outbox has waited for", 12, 3600)
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	w.exec("DELETE FROM cache_outbox WHERE id IN (1, 4)")
	r.Prove(t.Context())
	r.ListedEarlier(time.Minute)
	r.Prove(t.Context())
	wantStalled(t, r, "behind", "row 3 of cache_outbox has waited for", 0, 0)
	w.exec("INSERT INTO cache_outbox_workers (id, name, state, since, map_version, channel, format, heavy_since) VALUES ('other', 'other', 'working', UTC_TIMESTAMP(6), '', '', '', UTC_TIMESTAMP(6))")
	r.Prove(t.Context())
	wantStalled(t, r, "", "", 0, 0)
	// it may just have begun with other heavy rows
	w.exec("UPDATE cache_outbox_workers SET heavy_since = NULL, seen_at = UTC_TIMESTAMP(6) WHERE id = 'other'")
	r.Prove(t.Context())
	wantStalled(t, r, "", "", 0, 0)
	r.ListedEarlier(time.Minute)
	w.exec("UPDATE cache_outbox_workers SET seen_at = UTC_TIMESTAMP(6) WHERE id = 'other'")
	r.Prove(t.Context())
	wantStalled(t, r, "behind", "row 3 of cache_outbox has waited for", 0, 0)
}

// Row ID 0 counts like any other: gauges show its age, even if another session holds it, and a
// worker delivers it.
func TestMetricsOfRowZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.enqueue(things(1)...)
	w.exec("UPDATE cache_outbox SET id = 0")
	holder, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec("DELETE FROM cache_outbox"); err != nil {
		t.Fatal(err)
	}
	r.ReadGauges(t.Context())
	r.SawFirstRow(-time.Minute)
	r.ReadGauges(t.Context())
	r.Prove(t.Context())
	r.ListedEarlier(time.Minute)
	r.Prove(t.Context())
	if age := metric(t, r, "unstale_oldest_age_seconds"); age < 60 || age > 3600 {
		t.Errorf("the oldest age is %v, wanted a minute", age)
	}
	if age := metric(t, r, "unstale_oldest_held_age_seconds"); age < 12 || age > 3600 {
		t.Errorf("the oldest held age is %v, wanted the limit", age)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := r.drain(t).Claimed; n != 1 {
		t.Errorf("claimed %d rows, wanted 1", n)
	}
	if r.ReadGauges(t.Context()); metric(t, r, "unstale_rows_waiting") != 0 {
		t.Error("row 0 still waits")
	}
}
