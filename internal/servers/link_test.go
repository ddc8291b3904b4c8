package servers

import (
	"os/exec"
	"sync"
	"testing"
)

// A link comes back on its address while the program starts other processes, which have copies of
// the closed listener until they execute their program.
func TestCutWhileProcessesStart(t *testing.T) {
	link, err := NewLink("nothing", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	over := make(chan struct{})
	var starters sync.WaitGroup
	defer starters.Wait()
	defer close(over)
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 500 {
		if err := link.Cut(); err != nil {
			t.Fatalf("cut %d: %v", n, err)
		}
	}
}
