package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
)

// A review ends with the exit code of its findings; the first signal ends it with the results so
// far.
func TestDoctorKeys(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--enable-debug-command", "local")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	vars := map[string]string{"REDIS_URL": server.URL(), "UNSTALE_MAP": writeFile(t, thingMap)}
	do("set", "shop:thing:7", "x", "px", 3_600_000)
	if r := call(t, vars, "doctor", "--keys"); r.code != exitDone || !strings.HasPrefix(r.out, "keys looked at: 1, families: 1\n") {
		t.Errorf("%+v", r)
	}
	do("debug", "populate", 200_000, "shop:thing", 10)
	if r := call(t, vars, "doctor", "--keys", "--sample", "100", "--markdown"); r.code != exitWarning || !strings.Contains(r.out, "\n| warning | ttl | keys without a time to live: 100.") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--sample", "0"}, {"--json", "--markdown"}, {"--check", "reach"}} {
		if r := call(t, vars, append([]string{"doctor", "--keys"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	do("config", "resetstat")
	r := begin(t, vars, "doctor", "--keys", "--json")
	testenv.Eventually(t, "the walk to be under way", func() bool {
		_, calls, _ := strings.Cut(admin.Info(t.Context(), "commandstats").Val(), "cmdstat_pttl:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		n, _ := strconv.Atoi(calls)
		return n > 1000
	})
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r.wantExit(signalCode(syscall.SIGINT))
	var told doctor.ReviewReport
	object, _, _ := strings.Cut(r.log.String(), "\nunstale: ")
	if err := json.Unmarshal([]byte(object), &told); err != nil || told.Walked.Keys == 0 || told.Walked.All || told.Walked.Total < 200_000 || told.Walked.Stopped == "" {
		t.Errorf("%v: %s", err, r.log)
	}
}

// A key that no read of the map names and one that lives too long are warnings, with an example.
func TestDoctorKeysByRead(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	vars := map[string]string{"REDIS_URL": server.URL(), "UNSTALE_MAP": shippedMap}
	for key, ttl := range map[string]time.Duration{
		"zahraah:prod:product:42": 10 * time.Minute, "zahraah:prod:home": 50 * time.Second, "zahraah:prod:category:7:list:p1:sort:new": time.Minute,
		"zahraah:prod:coupon:SAVE10": 5 * time.Minute, "zahraah:prod:shipping:city:berlin": 15 * time.Minute,
	} {
		if err := admin.Set(t.Context(), key, "x", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if r := call(t, vars, "doctor", "--keys"); r.code != exitDone || !strings.Contains(r.out, "a read of the map names every key with the prefix zahraah:prod:") {
		t.Errorf("%+v", r)
	}
	if err := errors.Join(admin.Set(t.Context(), "zahraah:prod:home", "x", 20*time.Hour+30*time.Minute).Err(), admin.Set(t.Context(), "zahraah:prod:produkt:42", "x", time.Minute).Err(),
		admin.Del(t.Context(), "zahraah:prod:coupon:SAVE10").Err()); err != nil {
		t.Fatal(err)
	}
	r := call(t, vars, "doctor", "--keys")
	for _, text := range []string{
		`such as "zahraah:prod:home": 20h`, " left, at most 1m1s", "keys that no read of the map names: 1", `such as "zahraah:prod:produkt:42"`, "reads of the map without a key", "coupon",
	} {
		if r.code != exitWarning || !strings.Contains(r.out, text) {
			t.Errorf("no %s in %+v", text, r)
		}
	}
	if r := call(t, vars, "doctor", "--keys", "--no-names"); strings.Contains(r.out, "produkt") || strings.Contains(r.out, "20h") {
		t.Errorf("%+v", r)
	}
}
