package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

// Topologies of the database.
const (
	// OneServer is one MySQL or MariaDB.
	OneServer = "server"
	// OnePrimary is MySQL Group Replication whose primary takes the writes, behind HAProxy with the
	// settings of deploy/haproxy.
	OnePrimary = "primary"
	// Primaries is three nodes that all take writes: Galera on MariaDB, Group Replication on MySQL.
	// The shop writes on all, and workers run on two.
	Primaries = "primaries"
)

// Topologies are the valid ones.
var Topologies = []string{OneServer, OnePrimary, Primaries}

// A cluster is a database of three nodes that survives the loss of one.
type cluster struct {
	nodes  []*servers.MySQL
	group  *servers.Group  // nil: Galera
	galera *servers.Galera // nil: Group Replication
	proxy  *proxy          // leads to the primary; nil: each node takes writes
}

func newCluster(ctx context.Context, flavor servers.Kind, topology, dir string) (c *cluster, err error) {
	c = &cluster{}
	if flavor == servers.KindMariaDB {
		if c.galera, err = servers.StartGalera(ctx, servers.GaleraOptions{Args: rig.MySQLArgs}); err != nil {
			return nil, err
		}
		c.nodes = c.galera.Nodes
		return c, nil
	}
	// a node that is restarted takes no write before it is a member
	args := slices.Concat(rig.MySQLArgs, []string{"--super-read-only=ON"})
	if c.group, err = servers.StartGroup(ctx, servers.GroupOptions{SeveralPrimaries: topology == Primaries, Args: args}); err != nil {
		return nil, err
	}
	c.nodes = c.group.Nodes
	if topology == OnePrimary {
		if c.proxy, err = startProxy(ctx, c.nodes, dir); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *cluster) close() error {
	var errs []error
	if c.proxy != nil {
		errs = append(errs, c.proxy.close())
	}
	if c.group != nil {
		errs = append(errs, c.group.Close())
	}
	if c.galera != nil {
		errs = append(errs, c.galera.Close())
	}
	return errors.Join(errs...)
}

// fresh returns the settings of a session that reads what was committed on any node.
func (c *cluster) fresh() map[string]string {
	if c.group != nil {
		return map[string]string{"group_replication_consistency": "'BEFORE'"}
	}
	return map[string]string{"wsrep_sync_wait": "15"}
}

// caughtUp waits until all nodes have what was committed.
func (c *cluster) caughtUp(ctx context.Context) error {
	for _, node := range c.nodes {
		db, err := open(node.DSN(database), c.fresh())
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "SELECT COUNT(*) FROM cache_outbox")
		if err := errors.Join(err, db.Close()); err != nil {
			return err
		}
	}
	return nil
}

// inCluster are the faults of nodes, instead of those of one server.
var inCluster = []fault{
	{"node killed", 0, 2 * time.Second, killNode},
	{"node killed", 0, 8 * time.Second, killNode},
	{"node frozen", time.Second, 10 * time.Second, freeze(1)},
	{"quorum lost", 4 * time.Second, 15 * time.Second, freeze(2)},
}

// planned is a fault of a group with one primary.
var planned = fault{"primary switched", 0, time.Second, switchPrimary}

// target returns the node that a fault is about: the primary or, if all are, one that the hold
// chooses, which follows from the seed.
func (c *cluster) target(ctx context.Context, hold time.Duration) (int, error) {
	if c.proxy == nil {
		return int(hold/time.Millisecond) % len(c.nodes), nil
	}
	for i, node := range c.nodes {
		if is, err := ask(ctx, node, isPrimary); is && err == nil {
			return i, nil
		}
	}
	return 0, errors.New("no node is the primary")
}

const (
	isOnline  = "SELECT COUNT(*) > 0 FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ONLINE'"
	isPrimary = isOnline + " AND MEMBER_ROLE = 'PRIMARY'"
	areOnline = "SELECT COUNT(*) = 3 FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"
	areSynced = "SELECT COUNT(*) = 3 FROM information_schema.global_status WHERE (variable_name, variable_value) IN " +
		"(('WSREP_CLUSTER_SIZE', '3'), ('WSREP_READY', 'ON'), ('WSREP_LOCAL_STATE_COMMENT', 'Synced'))"
)

// ask asks a node a question with a yes or a no.
func ask(ctx context.Context, node *servers.MySQL, question string) (yes bool, err error) {
	return askAt(ctx, rig.DSN(node, ""), question)
}

func askAt(ctx context.Context, dsn, question string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, question).Scan(&yes)
	return yes, err
}

func killNode(ctx context.Context, s *stage, hold time.Duration) error {
	c := s.cluster
	i, err := c.target(ctx, hold)
	if err != nil {
		return err
	}
	if err := c.nodes[i].Kill(); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	if c.galera != nil {
		if err := c.galera.Rejoin(ctx, i); err != nil {
			return err
		}
	} else if err := c.nodes[i].Restart(ctx); err != nil {
		return err
	}
	return c.whole(ctx)
}

// freeze stops nodes for a while: one, which the others expel after some seconds and which does not
// know, or so many that the rest has no quorum.
func freeze(n int) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		c := s.cluster
		first, err := c.target(ctx, hold)
		if err != nil {
			return err
		}
		for i := range n {
			node := c.nodes[(first+i)%len(c.nodes)]
			if err := node.Pause(); err != nil {
				return err
			}
			defer func() { _ = node.Resume() }()
		}
		if err := sleep.For(ctx, hold); err != nil {
			return err
		}
		for i := range n {
			if err := c.nodes[(first+i)%len(c.nodes)].Resume(); err != nil {
				return err
			}
		}
		return c.whole(ctx)
	}
}

func switchPrimary(ctx context.Context, s *stage, hold time.Duration) error {
	i, err := s.cluster.target(ctx, hold)
	if err != nil {
		return err
	}
	next := s.cluster.nodes[(i+1)%len(s.cluster.nodes)]
	var uuid string
	db, err := sql.Open("mysql", next.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, "SELECT @@server_uuid").Scan(&uuid); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("SELECT group_replication_set_as_primary('%s')", uuid)) // which takes no parameter
	return err
}

// whole waits until all nodes are members. It brings back those that were expelled, as an operator
// does.
func (c *cluster) whole(ctx context.Context) error {
	question := areOnline
	if c.galera != nil {
		question = areSynced // which expelled nodes become by themselves
	}
	agreed := 0 // times in a row: a node that thaws is a member until the others expel it
	var failed error
	err := rig.Wait(ctx, 4*time.Minute, 200*time.Millisecond, func() (bool, error) {
		agreed++
		for i, node := range c.nodes {
			if all, err := ask(ctx, node, question); err == nil && all {
				continue
			}
			agreed = 0
			if c.galera != nil {
				continue
			}
			if left, err := ask(ctx, node, "SELECT COUNT(*) > 0 FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE IN ('OFFLINE', 'ERROR') OR MEMBER_ID = ''"); err == nil && left {
				failed = c.group.Join(ctx, i) // it may time out on a busy machine: again
			}
		}
		return agreed == 10, nil
	})
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}
