package maintenance_test

import (
	"crypto/sha1"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

const mapText = `version: 1
entities:
  product: {keys: ["shop:product:{id}"], patterns: ["shop:list:*"], tags: ["product-{id}"]}
  review: {keys: ["shop:product:{id}"]}
  held: {keys: ["shop:held:{id}"], hold: 1m}
`

// A bench is an outbox, a Redis, and a Checker whose proof covers everything.
type shadowBench struct {
	testing.TB
	*maintenance.ShadowChecker
	db      *testenv.Database
	store   *store.Store
	redis   *redis.Client
	log     *strings.Builder
	results []maintenance.ShadowResult
	proven  time.Time // zero: now
	state   *maintenance.State

	unstored error
	searched int // how often the journal was
}

// Checked and Unstored implement maintenance.ShadowMetrics.
func (b *shadowBench) Checked(r maintenance.ShadowResult) { b.results = append(b.results, r) }
func (b *shadowBench) Unstored(err error)                 { b.unstored = err }

type theMap struct{ m *invalidation.Map }

func (t theMap) Map() *invalidation.Map { return t.m }

func newShadowBench(t testing.TB) *shadowBench {
	r := testenv.Redis(t)
	return benchAt(t, storetest.Migrated(t), r.Client, r.URL)
}

func benchAt(t testing.TB, db *testenv.Database, client *redis.Client, url string) *shadowBench {
	t.Helper()
	at, err := redisurl.Parse(url, false)
	testenv.Must(t, err)
	k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: 5 * time.Second})
	testenv.Must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	m, err := invalidation.Parse("mapping.yaml", []byte(mapText), nil)
	testenv.Must(t, err)
	b := &shadowBench{TB: t, db: db, store: storetest.Open(t, db.DSN), redis: client, log: &strings.Builder{}, state: newState()}
	b.state.Others.Store(&[]string{})
	b.ShadowChecker = maintenance.NewShadowChecker(maintenance.Deps{
		Redis: k.Port(), Store: b.store, State: b.state, Map: theMap{m}, Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}, 24*time.Hour, b)
	b.CountSearches(&b.searched)
	return b
}

func (b *shadowBench) exec(query string, args ...any) {
	b.Helper()
	if _, err := b.db.DB.ExecContext(b.Context(), query, args...); err != nil {
		b.Fatal(query, err)
	}
}

// leased is the lease time of all entries.
var leased = time.Now().Add(-time.Minute).Truncate(time.Microsecond).UTC()

// report stores an entry and reports that it differs.
func (b *shadowBench) report(key string, tags ...string) { b.Helper(); b.reports(1, key, tags...) }

// reports is like report, for several reports.
func (b *shadowBench) reports(n int, key string, tags ...string) {
	b.Helper()
	const text = "entry"
	testenv.Must(b, b.redis.Set(b.Context(), key, text, 0).Err())
	s := protocol.Shadow{Process: "web-1", Key: key, Tags: tags, Lease: leased, Loaded: leased.Add(time.Second), Digest: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
	_, err := b.redis.Pipelined(b.Context(), func(p redis.Pipeliner) error {
		for range n {
			p.XAdd(b.Context(), &redis.XAddArgs{Stream: protocol.ShadowKey, Values: s.Fields()})
		}
		return nil
	})
	testenv.Must(b, err)
}

// step makes a step of a worker whose proof covers everything, or what was committed until proven.
func (b *shadowBench) step() {
	proven := b.proven
	if b.proven.IsZero() {
		proven = time.Now().Add(time.Second)
	}
	b.state.Proven.Store(&proven)
	b.Step(b.Context())
}

// want makes a step, and checks its results.
func (b *shadowBench) want(what string, want ...maintenance.ShadowResult) {
	b.Helper()
	b.results = nil
	b.step()
	if !slices.Equal(b.results, want) {
		b.Errorf("%s: %v, wanted %v\n%s", what, b.results, want, b.log)
	}
}

// settle unlinks names at a time of Redis, with a row of the product.
func (b *shadowBench) settle(at time.Time, e store.JournalEntry) {
	b.Helper()
	storetest.Enqueue(b, b.db.DB, storetest.Products(1)...)
	c := storetest.Claim(b, b.store, storetest.Limits)
	e.ID, e.Entity, e.EntityID = c.Rows[0].ID, "product", "1"
	testenv.Must(b, c.Settle(b.Context(), store.Settlement{Done: storetest.IDs(c.Rows), MapVersion: "v", Born: uint64(at.UnixMicro()), Journal: []store.JournalEntry{e}}))
}

// A difference that nothing explains is confirmed once, no matter how many processes report it and
// how many workers check it.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		r := testenv.Redis(t)
		confirmed(t, r.Client, r.URL)
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		set := testenv.OwnSentinel(t)
		client := redis.NewClient(&redis.Options{Addr: set.Master.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		confirmed(t, client, set.URL("", 0))
	})
}

func confirmed(t *testing.T, client *redis.Client, url string) {
	b := benchAt(t, storetest.Migrated(t), client, url)
	other := benchAt(t, b.db, client, url)
	b.settle(leased.Add(-time.Second), store.JournalEntry{Keys: []string{"shop:product:1"}, Patterns: []string{"shop:list:*"}})
	b.report("shop:product:1", "product-1")
	b.report("shop:product:1", "product-1")
	b.want("both", maintenance.Confirmed, maintenance.Known)
	other.want("another worker", maintenance.Known, maintenance.Known)
	b.want("later")
	var noted [2]int
	testenv.Must(t, b.db.DB.QueryRow("SELECT SUM(shadow_reads), SUM(confirmed) FROM cache_outbox_minutes WHERE worker = ?", b.store.ID).Scan(&noted[0], &noted[1]))
	if noted != [2]int{2, 1} {
		t.Errorf("%v", noted)
	}
	for _, part := range []string{"a cached value differs from the database", "key=shop:product:1", "outcome=no_row", "entities=\"[product review]\"", "process=web-1"} {
		if strings.Count(b.log.String(), part) != 1 {
			t.Errorf("no %s in %s", part, b.log)
		}
	}
	var key, tags, entities, outcome, process string
	var at, loaded time.Time
	testenv.Must(t, b.db.DB.QueryRow("SELECT cache_key, tags, entities, outcome, process, leased_at, loaded_at FROM cache_outbox_shadow").Scan(&key, &tags, &entities, &outcome, &process, &at, &loaded))
	if key != "shop:product:1" || tags != `["product-1"]` || entities != `["product","review"]` || outcome != "no_row" || process != "web-1" || !at.Equal(leased) || !loaded.Equal(leased.Add(time.Second)) {
		t.Error(key, tags, entities, outcome, process, at, loaded)
	}
}

// Reports of a known difference cost no search of the journal, and take no place from new ones,
// even while the proof lags.
func TestRepeatsCrowdOutNothing(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	b := benchAt(t, storetest.Migrated(t), r.Client, r.URL)
	other := benchAt(t, b.db, r.Client, r.URL)
	b.report("shop:product:1", "product-1")
	b.want("first", maintenance.Confirmed)
	once, many := b.searched, maintenance.MostWaiting/2
	known := slices.Repeat([]maintenance.ShadowResult{maintenance.Known}, many)
	for _, lags := range []bool{false, true, true} {
		if lags {
			b.proven = time.Now()
		}
		b.reports(many, "shop:product:1", "product-1")
		b.want(fmt.Sprint("repeats, the proof lags ", lags), known...)
	}
	b.report("shop:product:2", "product-2")
	b.want("a new one while the proof lags")
	b.proven = time.Time{}
	b.want("then", maintenance.Confirmed)
	if b.searched != 2*once {
		t.Errorf("the journal was searched %d times, for the first report %d times", b.searched, once)
	}
	other.step()
	other.step()
	if n := 3*many + 2; len(other.results) != n || slices.ContainsFunc(other.results, func(r maintenance.ShadowResult) bool { return r != maintenance.Known }) || other.searched != 0 {
		t.Errorf("another worker has searched %d times for %d reports", other.searched, len(other.results))
	}
}

// An entry that an unlink has not removed, and a key that no row reaches, are told apart.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := newShadowBench(t)
	after := leased.Add(time.Second)
	b.settle(after, store.JournalEntry{Keys: []string{"shop:product:1"}})
	b.settle(after, store.JournalEntry{Keys: []string{protocol.StampKey("product-2")}})
	b.settle(after, store.JournalEntry{Patterns: []string{"shop:list:*"}})
	b.report("shop:product:1")
	b.report("shop:product:2", "product-2")
	b.report("shop:list:a")
	b.report("shop:product:3", "product-3")
	b.report("shop:other")
	b.want("all", slices.Repeat([]maintenance.ShadowResult{maintenance.Confirmed}, 5)...)
	rows, err := b.db.DB.Query("SELECT CONCAT(cache_key, ' ', outcome, ' ', entities) FROM cache_outbox_shadow ORDER BY cache_key")
	testenv.Must(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		text := ""
		testenv.Must(t, rows.Scan(&text))
		all = append(all, text)
	}
	want := []string{
		`shop:list:a survived ["product"]`, `shop:other no_row []`, `shop:product:1 survived ["product","review"]`,
		`shop:product:2 survived ["product","review"]`, `shop:product:3 no_row ["product","review"]`,
	}
	if !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if n := strings.Count(b.log.String(), "add the key to an entity of the map"); n != 1 {
		t.Errorf("%d times: %s", n, b.log)
	}
}

// While something may explain the difference, the report waits.
func TestExplained(t *testing.T) {
	t.Parallel()
	const delayed = "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, attempts, repeated) VALUES ('product', '1', UTC_TIMESTAMP(6) + INTERVAL ? SECOND, ?, ?)"
	const dead = "INSERT INTO cache_outbox_dead (entity, entity_id, created_at, died_at, first_id, reason, error, map_version) VALUES ('x', '1', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL ? HOUR, 1, 'unknown_entity', '', '')"
	const sweep = "INSERT INTO cache_outbox_sweeps (kind, name) VALUES (?, ?)"
	b := newShadowBench(t)
	for i, c := range []struct {
		name     string
		explain  func()
		explains bool
	}{
		{"a delayed row that failed", func() { b.exec(delayed, 3600, 1, 0) }, true},
		{"a delayed row that is due", func() { b.exec(delayed, -1, 0, 0) }, true},
		{"a scheduled row", func() { b.exec(delayed, 3600, 0, 0) }, false},
		{"a repeat", func() { b.exec(delayed, -1, 0, 1) }, false},
		{"a dead letter", func() { b.exec(dead, 0) }, true},
		{"a dead letter of before the entry", func() { b.exec(dead, 1) }, false},
		{"a pattern", func() { b.exec(sweep, "pattern", "shop:prod*") }, true},
		{"a pattern of the tag", func() { b.exec(sweep, "pattern", "stamp:product-*") }, true},
		{"another pattern", func() { b.exec(sweep, "pattern", "shop:list:*") }, false},
		{"a set", func() { b.exec(sweep, "set", "tag:1") }, true},
		{"healing", func() { b.state.Loop.Withhold(maintenance.ErrHealing) }, true},
		{"an older proof", func() { b.proven = time.Now() }, true},
	} {
		id := fmt.Sprint(i + 1)
		c.explain()
		b.report("shop:product:"+id, "product-"+id)
		if !c.explains {
			b.want(c.name, maintenance.Confirmed)
		} else if b.want(c.name); b.Waiting() != 1 {
			b.Errorf("%s: %d reports wait", c.name, b.Waiting())
		}
		for _, table := range []string{"cache_outbox_delayed", "cache_outbox_dead", "cache_outbox_sweeps"} {
			b.exec("DELETE FROM " + table)
		}
		b.state.Loop.Polled()
		b.proven = time.Time{}
		if c.explains {
			b.want(c.name+", then", maintenance.Confirmed)
		}
	}
}

// A key that only another outbox of the same Redis reaches is not this worker's to judge.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	b := newShadowBench(t)
	b.state.Others.Store(&[]string{"staging:*", "shop:product:*"})
	b.report("staging:product:1")
	b.report("shop:product:1")
	b.report("other:1")
	b.want("ours, and nobody's", maintenance.Confirmed, maintenance.Confirmed)
	if b.Waiting() != 1 {
		t.Errorf("%d reports wait", b.Waiting())
	}
}

// A worker that may not store findings logs each once, and shows why in its status.
func TestNotStored(t *testing.T) {
	t.Parallel()
	b := newShadowBench(t)
	b.exec("RENAME TABLE cache_outbox_shadow TO elsewhere")
	b.report("shop:product:1")
	b.report("shop:product:1")
	b.want("not stored", maintenance.Confirmed, maintenance.Known)
	if b.unstored == nil {
		t.Error("nothing is shown")
	}
	b.exec("RENAME TABLE elsewhere TO cache_outbox_shadow")
	b.report("shop:product:1")
	b.want("stored", maintenance.Confirmed)
	if b.unstored != nil {
		t.Error(b.unstored)
	}
}

// An entry that was replaced, one of another type, and a key with a long hold are not confirmed.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	b := newShadowBench(t)
	for _, key := range []string{"shop:product:1", "shop:product:2", "shop:product:3"} {
		b.report(key)
	}
	testenv.Must(t, b.redis.Set(t.Context(), "shop:product:1", "new", 0).Err())
	testenv.Must(t, b.redis.Del(t.Context(), "shop:product:2", "shop:product:3").Err())
	testenv.Must(t, b.redis.LPush(t.Context(), "shop:product:3", "x").Err())
	b.want("replaced, gone and of another type", maintenance.Gone, maintenance.Gone, maintenance.Gone)
	b.report("shop:held:1")
	testenv.Must(t, b.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShadowKey, Values: []string{"key", "no report"}}).Err())
	if b.want("a hold that is longer than the lease"); b.Waiting() != 1 {
		t.Errorf("%d reports wait", b.Waiting())
	}
	if n := storetest.Count(t, b.db.DB, "cache_outbox_shadow"); n != 0 {
		t.Errorf("%d findings", n)
	}
}

// Only the latest findings stay.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	b := newShadowBench(t)
	b.exec(`INSERT INTO cache_outbox_shadow (id, cache_key, tags, entities, outcome, process, leased_at, loaded_at, confirmed_at)
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT UNHEX(LPAD(HEX(i), 40, '0')), i, '[]', '[]', 'no_row', 'p', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL i SECOND FROM n`, maintenance.Keep)
	b.report("shop:product:1")
	b.want("one more", maintenance.Confirmed)
	for condition, want := range map[string]int{"1 = 1": maintenance.Keep, "cache_key = 'shop:product:1'": 1, fmt.Sprintf("cache_key = '%d'", maintenance.Keep): 0} {
		if n := storetest.Count(t, b.db.DB, "cache_outbox_shadow WHERE "+condition); n != want {
			t.Errorf("%s: %d, wanted %d", condition, n, want)
		}
	}
}

// The rules of `unstale acl worker --shadow` suffice. A key outside of the map needs none. Without
// the option, the log has what is missing, once.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	m, err := invalidation.Parse("mapping.yaml", []byte(mapText), nil)
	testenv.Must(t, err)
	db := storetest.Migrated(t)
	for _, may := range []bool{true, false} {
		testenv.SetUser(t, admin, "worker", append([]string{"reset", "on", ">secret"}, doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: m, Shadow: may})...)...)
		b := benchAt(t, db, admin, "redis://worker:secret@"+r.Addr())
		b.report(fmt.Sprintf("shop:product:%v", may))
		b.report(fmt.Sprintf("other:%v", may))
		if may {
			b.want("with the rules", maintenance.Confirmed, maintenance.Confirmed)
			continue
		}
		b.want("without")
		b.want("without, again")
		if n := strings.Count(b.log.String(), "grant +xrange %R~unstale:shadow"); n != 1 {
			t.Errorf("%d times in %s", n, b.log)
		}
		if denied := testenv.Denied(t, admin, "worker"); !slices.Equal(denied, []string{"command xrange", "key other:true"}) {
			t.Errorf("denied: %q", denied)
		}
	}
}
