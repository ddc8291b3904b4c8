package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/review"
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
	var told review.Report
	object, _, _ := strings.Cut(r.log.String(), "\nunstale: ")
	if err := json.Unmarshal([]byte(object), &told); err != nil || told.Walked.Keys == 0 || told.Walked.All || told.Walked.Total < 200_000 || told.Walked.Stopped == "" {
		t.Errorf("%v: %s", err, r.log)
	}
}
