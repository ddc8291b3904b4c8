package zk_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	library "github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locking"
	"github.com/unstale/unstale/lock/internal/locktest"
	"github.com/unstale/unstale/lock/zk"
)

// ours returns the Backend of a path in ZooKeeper, such as 127.0.0.1:2181,127.0.0.1:2182/locks.
func ours(place string) zk.Backend {
	servers, root, _ := strings.Cut(place, "/")
	return zk.Backend{Servers: strings.Split(servers, ","), Root: "/" + root}
}

func TestMain(m *testing.M) {
	locktest.Main(m, func(place string) lock.Config {
		// three servers on a busy machine are slower than one
		return lock.Config{Backend: ours(place), TTL: 2 * short}
	})
}

const (
	long  = locktest.Long
	short = locktest.Short
)

var (
	must      = locktest.Must
	wantError = locktest.WantError
)

// A world is a path of one test's own in ZooKeeper, and a connection that sees everything.
type world struct {
	*locktest.World
	backend  zk.Backend
	ensemble *servers.ZooKeeper
	root     string
	admin    *library.Conn

	mu       sync.Mutex
	services map[*lock.Locker]locking.Service
	latest   map[string]acquired // by the name of the lock
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ensemble, root := testenv.ZooKeeper(t)
	return worldIn(t, ensemble, root)
}

func worldIn(t testing.TB, ensemble *servers.ZooKeeper, root string) *world {
	t.Helper()
	admin, events, err := library.Connect(ensemble.Addrs(), long, library.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(func() {
		admin.Close()
		for range events { // until it is done
			continue
		}
	})
	place := strings.Join(ensemble.Addrs(), ",") + root
	// A request goes to three servers, and may open a session before it.
	w := &locktest.World{TB: t, Backend: ours(place), Place: place, Patience: 6 * locktest.Patient}
	return &world{
		World: w, backend: ours(place), ensemble: ensemble, root: root, admin: admin,
		services: map[*lock.Locker]locking.Service{}, latest: map[string]acquired{},
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (w *world) dir(name string) string { return w.root + "/" + url.PathEscape(name) }

// nodes returns those of a lock, in their order.
func (w *world) nodes(name string) []string {
	w.Helper()
	_, err := w.admin.Sync(w.dir(name))
	must(w, err)
	nodes, _, err := w.admin.Children(w.dir(name))
	if err != nil && !errors.Is(err, library.ErrNoNode) {
		w.Fatal(err)
	}
	slices.SortFunc(nodes, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return nodes
}

// warm returns when a Locker has a session. On a busy machine its Timeout may be too short for
// that.
func (w *world) warm(l *lock.Locker) *lock.Locker {
	w.Helper()
	testenv.Eventually(w.TB, "a session", func() bool {
		held, err := l.TryAcquire(w.Context(), "warm")
		return err == nil && held.Release() == nil
	})
	return l
}

// lose removes the first node of a lock.
func (w *world) lose(name string) bool {
	nodes := w.nodes(name)
	return len(nodes) > 0 && w.admin.Delete(w.dir(name)+"/"+nodes[0], -1) == nil
}

func (w *world) wantNodes(name string, wanted int) {
	w.Helper()
	if nodes := w.nodes(name); len(nodes) != wanted {
		w.Errorf("lock %q has the nodes %q, wanted %d", name, nodes, wanted)
	}
}

// figures returns the statistics of one server.
func figures(t testing.TB, n *servers.ZooKeeperNode) map[string]string {
	t.Helper()
	text, err := n.Ask(t.Context(), "mntr")
	must(t, err)
	found := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		found[name] = value
	}
	return found
}
