package demo_test

import (
	"bufio"
	"context"
	"database/sql"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lab/demo"
	"github.com/unstale/unstale/lab/demo/shopcache"
	"github.com/unstale/unstale/outbox"
)

var keepTTL = redis.SetArgs{KeepTTL: true}

// Serve prints instructions, processes a row that a person inserts, prints the message that was
// received, and ends without an error.
func TestServe(t *testing.T) {
	t.Parallel()
	g, cfg := givenServers(t)
	d := start(t, cfg)
	checkReport(t, play(t, d), true)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- d.Serve(ctx, write, "bin/unstale")
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	guide := until(t, lines, "missing keys.")
	for _, want := range []string{
		"\n  bin/unstale enqueue product 42\n", "/" + d.Database() + "' REDIS_URL='redis://", "\n  export KEY_PREFIX=zahraah_demo_", " APP_ENV=dev\n",
		"\n  bin/unstale map explain --map " + shippedMap + " --entity product --id 42\n", "SUBSCRIBE cache:invalidate\n", "ROLLBACK",
	} {
		if !strings.Contains(guide, want) {
			t.Errorf("the guide lacks %q:\n%s", want, guide)
		}
	}
	if page := readPage(t, guide); !strings.Contains(page, "nothing is stale") || !strings.Contains(page, "act/pause") {
		t.Errorf("the console shows\n%s", page)
	}
	use := func(tx *sql.Tx) error {
		if _, err := tx.Exec("USE " + d.Database()); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, shopcache.InvalidateCoupon("WELCOME"))
	}
	if err := outbox.InTx(ctx, g.mysql.DB, use); err != nil {
		t.Fatal(err)
	}
	until(t, lines, ":coupon:WELCOME")
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }() // the rest of the output
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// readPage reads the console, whose address the guide has.
func readPage(t *testing.T, guide string) string {
	t.Helper()
	_, rest, _ := strings.Cut(guide, "\n  http://127.0.0.1:")
	port, _, _ := strings.Cut(rest, "/\n")
	answer, err := http.Get("http://127.0.0.1:" + port + "/?wait")
	if err != nil {
		t.Fatalf("%v\n%s", err, guide)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// until reads lines up to one that ends with text.
func until(t *testing.T, lines *bufio.Scanner, text string) string {
	t.Helper()
	var all strings.Builder
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), text) {
			return all.String()
		}
	}
	t.Fatalf("no line ends with %q, %v:\n%s", text, lines.Err(), &all)
	return ""
}

// No password reaches the terminal.
func TestGuideHidesPasswords(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://shop:open-sesame@127.0.0.1:6379/2",
		"redis+sentinel://shop:open-sesame@127.0.0.1:1,127.0.0.1:2/cache?sentinel_password=open-sesame",
	} {
		guide, err := demo.GuideOn(demo.Config{MySQLDSN: "root:open-sesame@tcp(127.0.0.1:3306)/", RedisURL: url})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(guide, "sesame") || !strings.Contains(guide, "MYSQL_DSN='root:PASSWORD@tcp(127.0.0.1:3306)/unstale_demo_") || !strings.Contains(guide, " REDIS_URL='redis") || !strings.Contains(guide, "shop:PASSWORD@127.0.0.1:") {
			t.Errorf("the guide says\n%s", guide)
		}
	}
}

// Validate names the invalid fields.
func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]demo.Config{
		`flavor "oracle": must be mysql or mariadb`:                                                                 {Flavor: "oracle"},
		"flavor cannot be combined with a given MySQL; it selects the private server":                               {Flavor: "mysql", MySQLDSN: "root@tcp(127.0.0.1:1)/"},
		"redis url: the demo does not support Redis Cluster; use a single Redis, or leave it out for a private one": {RedisURL: "redis+cluster://127.0.0.1:1"},
		"mysql dsn: ": {MySQLDSN: "nonsense"},
		"redis url: ": {RedisURL: "http://127.0.0.1"},
	} {
		if _, err := demo.Start(t.Context(), cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, wanted %q", err, want)
		}
	}
}
