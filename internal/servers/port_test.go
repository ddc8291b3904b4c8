package servers

import (
	"net"
	"testing"
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
		return freePort()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if tries != 2 || r.Addr() == taken.Addr().String() {
		t.Fatalf("%d tries, address %s", tries, r.Addr())
	}
}
