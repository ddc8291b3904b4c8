package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/lab/demo"
)

// wantRows are the rows of a successful run: change, key or pattern, number of keys.
var wantRows = []string{
	"product 42 changes price|product:42|1",
	"product 42 changes price|category:7:list:*|6",
	"product 42 changes price|category:70:list:*|6",
	"variant 4301 changes colour|product:43|1",
	"variant 4301 changes colour|category:7:list:*|6",
	"product 44 moves, category 7 to 9|product:44|1",
	"product 44 moves, category 7 to 9|category:7:list:*|6",
	"product 44 moves, category 7 to 9|category:9:list:*|6",
	"product 45 changes price: ROLLBACK|product:45|1",
	"product 45 changes price: ROLLBACK|category:8:list:*|6",
	"category 9 is renamed|home|1",
	"category 9 is renamed|category:9:list:*|6",
	"shipping to riyadh gets cheaper|shipping:city:*|3",
	"price rule 4 changes|shipping:city:*|3",
	"coupon SUMMER10 changes (plain SQL)|coupon:SUMMER10|1",
	"stock of product 421 is sold|product:421|1",
	"stock of product 421 is sold|category:70:list:*|6",
}

// checkReport checks that a report describes a successful run.
func checkReport(t *testing.T, r *demo.Report, sequence bool) {
	t.Helper()
	checkFaults(t, r)
	checkReaders(t, r)
	if n := r.Nines; n.Invalidations != 482 || n.Within10s < n.Within1s || n.Within1s < n.Within100ms || n.Within10s == 0 || n.Entries == 0 || n.Stale != 0 {
		t.Errorf("nines: %+v", n)
	}
	var rows []string
	var last uint64
	for _, c := range r.Changes {
		covered := 0
		for _, target := range c.Targets {
			rows = append(rows, fmt.Sprintf("%s|%s|%d", c.Name, target.Name, target.Keys))
			covered += target.Keys
			switch {
			case !c.Judged:
				t.Errorf("%s was not judged", c.Name)
			case c.RolledBack && (target.Left != target.Keys || target.GoneMS != nil || target.HeardMS != nil):
				t.Errorf("%s: %+v although it rolled back", c.Name, target)
			case c.RolledBack:
			case target.Left != 0 || target.GoneMS == nil || target.HeardMS == nil || *target.GoneMS < 0 || *target.HeardMS < 0:
				t.Errorf("%s: %+v", c.Name, target)
			case sequence && (target.Seq == 0 || target.Seq < last):
				t.Errorf("%s: message %d came after %d", c.Name, target.Seq, last)
			}
			last = max(last, target.Seq)
		}
		if !c.RolledBack && c.Kept+c.Settled != r.Keys-covered {
			t.Errorf("%s: %d keys of %d stayed, %d went, %d were settled", c.Name, c.Kept, r.Keys, covered, c.Settled)
		}
	}
	if got, want := strings.Join(rows, "\n"), strings.Join(wantRows, "\n"); got != want {
		t.Errorf("rows:\n%s\nwanted:\n%s", got, want)
	}
}

// On private servers, the demo has the expected outcome, prints a table that fits, and leaves
// nothing behind.
func TestPlaysOnPrivateServers(t *testing.T) {
	t.Parallel()
	var steps bytes.Buffer
	d := start(t, demo.Config{Flavor: flavor(), MapFile: shippedMap, Steps: &steps})
	r := play(t, d)
	checkReport(t, r, true)
	if n := strings.Count(steps.String(), " s\n"); n != 9 || n != strings.Count(steps.String(), "\n") {
		t.Errorf("wanted nine steps with their time, got\n%s", &steps)
	}
	if r.Prefix != "zahraah:dev:" || !strings.HasPrefix(r.Redis, "Redis ") || !strings.Contains(r.MySQL, servers.ShortVersion(d.PrivateMySQL().Version())) {
		t.Errorf("report says %q, %q, %q", r.Prefix, r.Redis, r.MySQL)
	}
	checkTable(t, r)
	mysql, redis := d.PrivateMySQL(), d.PrivateRedis()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*servers.Server{mysql.Server, redis.Server} {
		if err := syscall.Kill(s.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", s.Pid(), err)
		}
		if _, err := os.Stat(s.Log()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("folder of %s is still there: %v", s.Log(), err)
		}
	}
}

// checkTable checks that the table agrees with the report and fits in 100 columns.
func checkTable(t *testing.T, r *demo.Report) {
	t.Helper()
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 100 || strings.TrimRight(line, " ") != line || strings.ContainsAny(line, "\x1b\r\t") {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	text := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{
		" product 1001: MySQL has 44.90, Redis has 49.90 for 11 more minutes the next reader gets 49.90 ",
		" product 1001: MySQL has 44.90, Redis has no value the next reader gets 44.90 ",
		" as in \"unstale status\": 482 invalidations, ", "% within 100ms, ", " no stale entry in ",
		" old prices in Redis. Package cache left none and refused ",
		" product 45 changes price: ROLLBACK product:45 1 stayed none category:8:list:* 6 stayed none category 9 ",
		" 8 committed changes: 6 keys and 9 patterns deleted 54 cached values; all other keys stayed.",
		" 1 rolled back: its keys stayed, and no message was sent",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
}

// On given servers, the demo uses its own database and keys, removes them at the end, and leaves
// existing data alone.
func TestPlaysOnGivenServers(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	ctx := t.Context()
	others := []string{"zahraah:prod:product:42", "zahraah:prod:category:7:list:p1:sort:new", "zahraah:prod:home", "zahraah:dev:home"}
	for _, key := range others {
		if err := g.redis.Client.Set(ctx, key, "somebody's", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, cfg)
	keys, err := g.redis.Client.Keys(ctx, "zahraah_demo_*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys { // every cache key has a TTL
		if ttl := g.redis.Client.TTL(ctx, key).Val(); ttl < 20*time.Second || ttl > 30*time.Minute {
			t.Errorf("%s lives %s", key, ttl)
		}
	}
	r := play(t, d)
	checkReport(t, r, true)
	if r.Keys != len(keys) {
		t.Errorf("the report speaks of %d keys, Redis had %d", r.Keys, len(keys))
	}
	database := d.Database()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := g.redis.Client.DBSize(ctx).Val(); n != int64(len(others)) {
		t.Errorf("Redis has %d keys, %d of them are somebody's", n, len(others))
	}
	var found bool
	if err := g.mysql.DB.QueryRow("SELECT EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = ?)", database).Scan(&found); err != nil || found {
		t.Errorf("database %s is left: %v, %v", database, found, err)
	}
}

// The subscriber also receives messages in the format of the oldest clients.
func TestHearsTheArrayFormat(t *testing.T) {
	t.Parallel()
	_, cfg := givenServers(t)
	cfg.MapFile = changedMap(t, "format: event", "format: array")
	checkReport(t, play(t, start(t, cfg)), false)
}

// The report as JSON has empty lists instead of null, and can be decoded again.
func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	_, cfg := givenServers(t)
	r := play(t, start(t, cfg))
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back demo.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	checkReport(t, &back, true)
	for _, want := range []string{`"ok":true`, `"faults":[]`, `"gone_ms":null`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// The demo refuses to start with these maps, and gives the reason.
func TestRefusesMaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, want string }{
		"foreign keys": {changedMap(t, "${KEY_PREFIX:-zahraah}", "zahraah"), `makes "zahraah:dev:product:42" stale, but the demo's keys begin with "zahraah_demo_`},
		"no entity":    {changedMap(t, "  coupon:\n    keys:", "  voucher:\n    keys:", "from: [coupon]", "from: [voucher]"), `refuses "coupon SUMMER10 changes (plain SQL)": unknown_entity`},
		"no read":      {changedMap(t, "  home:\n", "  start:\n"), "mapping.yaml: the map has no read home, which the demo stores"},
		"no file":      {"no/such.yaml", "read map: open no/such.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, cfg := givenServers(t)
			cfg.MapFile = c.path
			if _, err := demo.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, wanted %q", err, c.want)
			}
		})
	}
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		cfg := demo.Config{MapFile: changedMap(t, "format: event", "format: xml")}
		_, err := demo.Start(t.Context(), cfg)
		var faults invalidation.Faults
		if !errors.As(err, &faults) {
			t.Errorf("got %v", err)
		}
	})
}
