package main

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// config prints each setting with its origin and no secret, and refuses what run refuses.
func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	writeSecret(t, file, "redis://worker:hush@cache:6379/3")
	env := map[string]string{
		"MYSQL_DSN": "worker:hush@tcp(db:3306)/shop?tls=skip-verify&timeout=1s", "REDIS_URL_FILE": file, "REDIS_TLS": "true",
		"UNSTALE_MESSAGE_KEY": "hush-hush-hush-hush", "UNSTALE_BATCH_ROWS": "7",
	}
	want := map[string]setting{
		"mysql-dsn":    {Variable: "MYSQL_DSN", Value: "worker@tcp(db:3306)/shop?tls=skip-verify", From: "variable"},
		"redis-url":    {Variable: "REDIS_URL", Value: "rediss://worker:xxxxx@cache:6379/3", From: "file", File: file},
		"message-key":  {Variable: "UNSTALE_MESSAGE_KEY", Value: "(given)", From: "variable"},
		"batch-rows":   {Variable: "UNSTALE_BATCH_ROWS", Value: "7", From: "variable"},
		"batch-keys":   {Variable: "UNSTALE_BATCH_KEYS", Value: "9", From: "flag"},
		"max-attempts": {Variable: "UNSTALE_MAX_ATTEMPTS", Value: "8", From: "default"},
	}
	r := call(t, env, "config", "--json", "--batch-keys", "9")
	var all []setting
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != exitDone || strings.Contains(r.out+r.err, "hush") {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, got := range all {
		expected, ok := want[got.Flag]
		expected.Flag = got.Flag
		if ok && got != expected {
			t.Errorf("%+v, wanted %+v", got, expected)
		}
		delete(want, got.Flag)
	}
	if len(want) > 0 || len(all) < 25 {
		t.Errorf("%d settings, without %v", len(all), want)
	}
	r = call(t, env, "config", "--batch-keys", "9")
	for _, line := range [][]string{
		{"--redis-url", "rediss://worker:xxxxx@cache:6379/3", "file " + file}, {"--batch-rows", "7", "UNSTALE_BATCH_ROWS"}, {"--batch-keys", "9", "flag"}, {"--max-attempts", "8", "default"},
	} {
		if text := strings.Join(strings.Fields(r.out), " "); r.code != exitDone || !strings.Contains(text, strings.Join(line, " ")) || strings.Contains(r.out, "hush") {
			t.Errorf("%q is not in %+v", line, r)
		}
	}
	for _, bad := range []struct{ name, value, want string }{
		{"MYSQL_DSN", "hush", "mysql dsn: invalid DSN"},
		{"MYSQL_DSN", "", "no MySQL given"},
		{"REDIS_URL_FILE", file + "2", "REDIS_URL_FILE: open "},
		{"UNSTALE_BATCH_ROWS", "0", "batch rows 0: wanted 1 to"},
		{"UNSTALE_BATCH_ROWS", "many", `variable UNSTALE_BATCH_ROWS "many": must be a number such as 10`},
		{"UNSTALE_SWEEP_SHARE", "0", "--sweep-share is 0"},
		{"UNSTALE_LOOKUP_TIMEOUT", "0s", "--lookup-timeout is 0"},
		{"UNSTALE_LOG_LEVEL", "loud", `log-level "loud": must be debug`},
		{"UNSTALE_LOG_FORMAT", "xml", `log-format "xml": must be auto`},
		{"UNSTALE_LISTEN", "foo", `--listen "foo": must be host:port`},
		{"UNSTALE_LISTEN", ":99999", `--listen ":99999": must be host:port`},
		{"UNSTALE_CONSOLE", "127.0.0.1:99999", `--console "127.0.0.1:99999": must be host:port`},
		{"REDIS_TLS", "maybe", `variable REDIS_TLS "maybe": must be true or false`},
	} {
		changed := maps.Clone(env)
		changed[bad.name] = bad.value
		config, run := call(t, changed, "config"), call(t, changed, "run")
		if config.code != exitUsage || !strings.Contains(config.err, bad.want) || strings.Contains(config.out+config.err, "hush") {
			t.Errorf("%s: %+v", bad.name, config)
		}
		if !strings.Contains(config.out, "--retry-delay") {
			t.Errorf("%s: other settings are not printed: %+v", bad.name, config)
		}
		if run.code != exitUsage || !strings.HasPrefix(run.err, strings.SplitN(config.err, "See '", 2)[0]) {
			t.Errorf("%s: run says %+v", bad.name, run)
		}
	}
	r = call(t, env, "run", "--redis-tls=maybe")
	if r.code != exitUsage || !strings.Contains(r.err, `--redis-tls "maybe": must be true or false`) {
		t.Errorf("%+v", r)
	}
}
