package servers_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// An ensemble elects another leader if the leader is killed, accepts it again later, and can be
// frozen as a whole.
func TestZooKeeperEnsemble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	z, err := servers.StartZooKeeper(t.Context(), servers.ZooKeeperOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if servers.ShortVersion(z.Version()) != z.Nodes[0].Program().Version {
		t.Errorf("Version() = %q, the jar has %q", z.Version(), z.Nodes[0].Program().Version)
	}
	first, err := z.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	var second *servers.ZooKeeperNode
	for second == nil && t.Context().Err() == nil {
		second, _ = z.Leader(t.Context())
	}
	if second == first {
		t.Error("the killed leader still leads")
	}
	if err := first.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := z.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if text, err := first.Ask(ctx, "ruok"); err == nil {
		t.Errorf("a frozen server returned %q", text)
	}
	if err := z.Resume(); err != nil {
		t.Fatal(err)
	}
	if text, err := first.Ask(t.Context(), "mntr"); err != nil || !strings.Contains(text, "zk_server_state\tfollower") {
		t.Errorf("it returned %q, %v", text, err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestZooKeeperAlone(t *testing.T) {
	t.Parallel()
	z, err := servers.StartZooKeeper(t.Context(), servers.ZooKeeperOptions{Servers: 1, Config: "minSessionTimeout=12345\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	text, err := z.Nodes[0].Ask(t.Context(), "conf")
	if err != nil || !strings.Contains(text, "minSessionTimeout=12345\n") {
		t.Errorf("it returned %q, %v", text, err)
	}
}
