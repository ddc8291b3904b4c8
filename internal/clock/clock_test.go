package clock_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newFile(t *testing.T) *clock.File {
	t.Helper()
	file, err := clock.NewFile(filepath.Join(t.TempDir(), "offset"))
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, file.Close()) })
	return file
}

// jumps are what a clock is set by. A busy machine may be late by minutes.
var jumps = []time.Duration{0, time.Hour, -24 * time.Hour, 0}

func wantJump(t *testing.T, shown time.Time, wanted time.Duration) {
	t.Helper()
	if ahead := time.Until(shown).Round(30 * time.Minute); ahead != wanted {
		t.Errorf("the clock is ahead by %s, wanted %s", ahead, wanted)
	}
}

// A program without the overlay says so, rather than going by the true clock.
func TestFollowWithoutOverlay(t *testing.T) {
	t.Setenv("UNSTALE_CLOCK_OFFSET", filepath.Join(t.TempDir(), "offset"))
	if err := clock.Follow(); err == nil || !strings.Contains(err.Error(), "without the overlay") {
		t.Errorf("Follow: %v", err)
	}
}

// A Go whose time.Now is written in another way is refused.
func TestOverlayOfUnknownSource(t *testing.T) {
	t.Parallel()
	goroot := t.TempDir()
	testenv.Must(t, os.MkdirAll(filepath.Join(goroot, "src", "time"), 0o700))
	testenv.Must(t, os.WriteFile(filepath.Join(goroot, "src", "time", "time.go"), []byte("package time\n"), 0o600))
	_, err := clock.Overlay(goroot, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "adapt internal/clock/overlay.go") {
		t.Errorf("Overlay: %v", err)
	}
}

// The clock of Redis is set, forward and back.
func TestLibrary(t *testing.T) {
	t.Parallel()
	library, err := clock.Library(t.TempDir())
	testenv.Must(t, err)
	file := newFile(t)
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Env: []string{library, file.Env()}})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, server.Close()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for _, jump := range jumps {
		file.Set(jump)
		shown, err := client.Time(t.Context()).Result()
		testenv.Must(t, err)
		wantJump(t, shown, jump)
	}
}
