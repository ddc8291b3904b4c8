package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// ZooKeeperOptions configures ZooKeeper servers.
type ZooKeeperOptions struct {
	// Servers is the number of servers. Zero: three.
	Servers int
	// Dir is the directory in which the servers' temporary directories are created. Empty: the
	// system's.
	Dir string
	// Config has further lines for every server's configuration file, which override its other
	// lines.
	Config string
	// Env is added to the environments of the servers, by index; for example, "LD_PRELOAD=clock.so"
	// for the first one. It may be shorter than the number of servers.
	Env [][]string
}

// A ZooKeeper is a private ensemble of ZooKeeper servers, each in a separate process. All clients
// may read and write.
type ZooKeeper struct {
	Nodes []*ZooKeeperNode
}

// A ZooKeeperNode is one server of an ensemble. It responds only while most of them run.
type ZooKeeperNode struct {
	*Server
	peers, election int // ports
}

// zookeeperConfig has ticks that allow sessions of half a second, and limits that a busy machine
// rarely reaches. If ZooKeeper 3.8 blocks a new leader forever (see caughtUp in package lock), it
// gives up after initLimit, here 20 s, and is elected again.
const zookeeperConfig = `dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
tickTime=200
initLimit=100
syncLimit=100
maxSessionTimeout=86400000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
`

// zookeeperFlags make the process small and fast to start, and keep nothing for longer than the
// machine runs.
var zookeeperFlags = []string{
	"-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:ActiveProcessorCount=2",
	"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=256",
	"-Dzookeeper.fastleader.maxNotificationInterval=1000",
}

// StartZooKeeper starts an ensemble and returns when each server responds. Without a deadline in
// ctx it gives up after two minutes. The caller must Close it.
func StartZooKeeper(ctx context.Context, o ZooKeeperOptions) (*ZooKeeper, error) {
	program, err := Find(KindZooKeeper)
	if err != nil {
		return nil, err
	}
	if o.Servers == 0 {
		o.Servers = 3
	}
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	for range startTries {
		var z *ZooKeeper
		if z, err = newZooKeeper(program, o); err != nil {
			return nil, err
		}
		if err = z.each(func(n *ZooKeeperNode) error { return n.first(ctx) }); err == nil {
			return z, nil
		}
		_ = z.Close()
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, err
}

// newZooKeeper prepares the servers, which need the ports of all others before the first one
// starts.
func newZooKeeper(program *Program, o ZooKeeperOptions) (*ZooKeeper, error) {
	z := &ZooKeeper{}
	var list strings.Builder
	for i := range o.Servers {
		folder, err := newFolder(o.Dir)
		if err != nil {
			_ = z.Close()
			return nil, err
		}
		n := &ZooKeeperNode{Server: &Server{program: program, folder: folder}}
		z.Nodes = append(z.Nodes, n)
		var ports [3]int
		for p := range ports {
			if ports[p], err = FreePort(); err != nil {
				_ = z.Close()
				return nil, err
			}
		}
		n.port, n.peers, n.election = ports[0], ports[1], ports[2]
		n.ports = func() (int, error) { return ports[0], nil }
		n.probe = n.ask
		n.command = func() *exec.Cmd {
			cmd := program.command(program.zookeeperArgs(folder.join("zoo.cfg"))...)
			if i < len(o.Env) {
				cmd.Env = append(cmd.Environ(), o.Env[i]...)
			}
			return cmd
		}
		if o.Servers > 1 {
			fmt.Fprintf(&list, "server.%d=127.0.0.1:%d:%d\n", i+1, n.peers, n.election)
		}
	}
	for i, n := range z.Nodes {
		config := fmt.Sprintf(zookeeperConfig, n.folder.path, n.port) + list.String() + o.Config
		err := os.WriteFile(n.folder.join("zoo.cfg"), []byte(config), 0o600)
		if err == nil {
			err = os.WriteFile(n.folder.join("myid"), fmt.Append(nil, i+1), 0o600)
		}
		if err != nil {
			_ = z.Close()
			return nil, fmt.Errorf("configure ZooKeeper: %w", err)
		}
	}
	return z, nil
}

// Addrs returns the addresses for clients.
func (z *ZooKeeper) Addrs() []string {
	var addrs []string
	for _, n := range z.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Version returns the version that the first server reports.
func (z *ZooKeeper) Version() string { return z.Nodes[0].Version() }

// Pause freezes every server: see Server.Pause.
func (z *ZooKeeper) Pause() error {
	return z.each(func(n *ZooKeeperNode) error { return n.Pause() })
}

// Resume continues all frozen servers: see Server.Resume.
func (z *ZooKeeper) Resume() error {
	return z.each(func(n *ZooKeeperNode) error { return n.Resume() })
}

// Leader returns the server that leads the others, or an error if no server leads.
func (z *ZooKeeper) Leader(ctx context.Context) (*ZooKeeperNode, error) {
	for _, n := range z.Nodes {
		if text, err := n.Ask(ctx, "srvr"); err == nil && strings.Contains(text, "Mode: leader") {
			return n, nil
		}
	}
	return nil, errors.New("no ZooKeeper server leads")
}

// Close ends all servers and removes their directories. It may be called twice.
func (z *ZooKeeper) Close() error {
	return z.each(func(n *ZooKeeperNode) error { return n.Close() })
}

// each calls do for all servers in parallel: none responds before most of them run.
func (z *ZooKeeper) each(do func(*ZooKeeperNode) error) error {
	errs := make([]error, len(z.Nodes))
	var group sync.WaitGroup
	for i, n := range z.Nodes {
		group.Go(func() { errs[i] = do(n) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Ask sends one of ZooKeeper's four-letter words, such as mntr, and returns the reply.
func (n *ZooKeeperNode) Ask(ctx context.Context, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// askInterval limits the queries to a server that has no leader yet, each of which costs the server
// a thread.
const askInterval = 50 * time.Millisecond

// ask returns the server's version once it has a leader or is the leader.
func (n *ZooKeeperNode) ask(ctx context.Context) (version string, err error) {
	text, err := n.Ask(ctx, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if found, ok := strings.CutPrefix(line, "Zookeeper version: "); ok && strings.Contains(text, "Mode: ") {
			return strings.TrimSpace(found), nil
		}
	}
	_ = pause(ctx, askInterval)
	return "", fmt.Errorf("ZooKeeper returned %q", strings.TrimSpace(text))
}
