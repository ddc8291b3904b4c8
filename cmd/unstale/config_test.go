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
		"MYSQL_DSN": "worker:hush@tcp(db:3306)/shop", "REDIS_URL_FILE": file, "REDIS_TLS": "true",
		"UNSTALE_MESSAGE_KEY": "hush-hush-hush-hush", "UNSTALE_BATCH_ROWS": "7",
	}
	want := map[string]setting{
		"mysql-dsn":    {Variable: "MYSQL_DSN", Value: "worker@tcp(db:3306)/shop", From: "variable"},
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
	for name, bad := range map[string]string{"MYSQL_DSN": "hush", "REDIS_URL_FILE": file + "2", "UNSTALE_BATCH_ROWS": "0", "UNSTALE_SWEEP_SHARE": "0"} {
		changed := maps.Clone(env)
		changed[name] = bad
		if r := call(t, changed, "config"); r.code != exitUsage || strings.Contains(r.out+r.err, "hush") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
