package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

// GroupOptions configures a group of MySQL servers.
type GroupOptions struct {
	// Nodes is the number of servers. Zero means three, the least that survives the loss of one.
	Nodes int
	// SeveralPrimaries makes every node a primary. Otherwise only one is.
	SeveralPrimaries bool
	// Dir is as in MySQLOptions.
	Dir string
	// Args are further options of each server.
	Args []string
}

// A Group is a set of private MySQL servers with Group Replication. Its nodes are servers like any
// other: Kill, Pause, Resume, Stop and Restart work. A stopped or killed node is a member again
// after Restart and Join. The others expel a node that does not respond for about five seconds.
type Group struct {
	Nodes []*MySQL
}

// StartGroup starts the nodes of a group, and returns when all are online. It needs the plugin
// group_replication next to the program. The caller must Close the group.
func StartGroup(ctx context.Context, o GroupOptions) (_ *Group, err error) {
	program, err := Find(KindMySQL)
	if err != nil {
		return nil, err
	}
	count := o.Nodes
	if count == 0 {
		count = 3
	}
	seeds := make([]string, count)
	for i := range seeds {
		bus, err := FreePort()
		if err != nil {
			return nil, err
		}
		seeds[i] = PortAddress(bus)
	}
	g := &Group{Nodes: make([]*MySQL, count)}
	defer func() {
		if err != nil {
			_ = g.Close()
		}
	}()
	name := uuid()
	var starts errgroup.Group
	for i := range count {
		starts.Go(func() (err error) {
			args := append(groupArgs(name, seeds, i, o.SeveralPrimaries), o.Args...)
			g.Nodes[i], err = StartMySQL(ctx, MySQLOptions{Program: program, Dir: o.Dir, Args: args})
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		return nil, err
	}
	if err := g.Bootstrap(ctx, 0); err != nil {
		return nil, err
	}
	for i := 1; i < count; i++ {
		if err := g.Join(ctx, i); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// groupArgs returns the options of node i. A node joins only when it is told to.
func groupArgs(name string, seeds []string, i int, several bool) []string {
	one, every := "ON", "OFF"
	if several {
		one, every = every, one
	}
	return []string{
		fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--report-host=127.0.0.1", // with the port, what the other nodes connect to
		"--plugin-load-add=group_replication.so",
		"--group-replication-group-name=" + name,
		"--group-replication-start-on-boot=OFF",
		"--group-replication-local-address=" + seeds[i],
		"--group-replication-group-seeds=" + strings.Join(seeds, ","),
		"--group-replication-single-primary-mode=" + one,
		"--group-replication-enforce-update-everywhere-checks=" + every,
		"--group-replication-member-expel-timeout=0",
	}
}

// Bootstrap starts the group on node i alone, for example after all nodes were killed.
func (g *Group) Bootstrap(ctx context.Context, i int) error {
	return g.start(ctx, i, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION",
		"SET GLOBAL group_replication_bootstrap_group = OFF")
}

// Join adds node i to the running group, and returns when it is online. The node may be one that was
// expelled or that left.
func (g *Group) Join(ctx context.Context, i int) error {
	return g.start(ctx, i, "STOP GROUP_REPLICATION", "START GROUP_REPLICATION")
}

// start runs the statements that add node i, and waits until it is online.
func (g *Group) start(ctx context.Context, i int, statements ...string) error {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	db, err := sql.Open("mysql", g.Nodes[i].DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	statements = append([]string{"CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'"}, statements...)
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("join a group as node %d: %s: %w; its log ends with:\n%s", i, s, err, tail(g.Nodes[i].Log()))
		}
	}
	for {
		state, err := memberState(ctx, db)
		if err == nil && state == "ONLINE" {
			return nil
		}
		if stopped := pause(ctx, 10*probeInterval); stopped != nil {
			return fmt.Errorf("join a group as node %d: %w; its state is %q (%v); its log ends with:\n%s", i, stopped, state, err, tail(g.Nodes[i].Log()))
		}
	}
}

func memberState(ctx context.Context, db *sql.DB) (state string, err error) {
	err = db.QueryRowContext(ctx, "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid").Scan(&state)
	return state, err
}

// Close closes all nodes.
func (g *Group) Close() error { return closeNodes(g.Nodes) }

func closeNodes(nodes []*MySQL) error {
	var errs []error
	for _, node := range nodes {
		if node != nil { // it started
			errs = append(errs, node.Close())
		}
	}
	return errors.Join(errs...)
}

// uuid returns a random UUID, which names a group.
func uuid() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
