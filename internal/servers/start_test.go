package servers

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestFirstStartTakesAnotherPortWhenOneIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	program, err := Find(KindRedis)
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	r, err := startRedis(t.Context(), program, RedisOptions{}, func() (int, error) {
		tries++
		if tries == 1 {
			return taken.Addr().(*net.TCPAddr).Port, nil
		}
		return FreePort()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if tries != 2 || r.Addr() == taken.Addr().String() {
		t.Fatalf("%d tries, address %s", tries, r.Addr())
	}
}

func TestServerThatNeverAnswersIsBoundByTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "silent")
	program(t, path, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := StartRedis(ctx, RedisOptions{Program: &Program{Kind: KindRedis, Path: path}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("StartRedis = %v, want %v", err, context.DeadlineExceeded)
	}
}
