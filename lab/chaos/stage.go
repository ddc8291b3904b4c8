package chaos

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A stage holds the servers and the links between them and the workers. The shop connects directly.
type stage struct {
	mysql   *servers.MySQL // of a cluster, the first node
	cluster *cluster       // nil: mysql is all
	db      *sql.DB        // of the checker
	shops   []*sql.DB      // of the shop: one for each node that takes writes
	redis   [2]*rig.Node

	disk      *servers.Disk // of the binary log; nil: that of the data
	diskError error         // why

	toMySQL, toRedis *servers.Link // of the workers
	toOther          *servers.Link // of each second worker, to another node; nil: all use toMySQL
	toMaster         *servers.Link // of the replica

	remap func(text string) error // gives the workers a map

	mu     sync.Mutex
	master int      // index into redis
	losses []window // since the last check
}

// A window is a time in which Redis lost writes: keys that were not set before or after it may be
// gone.
type window struct{ from, to time.Time }

const (
	database = "chaos"
	account  = "unstale:chaos" // of the workers
)

const (
	claimTimeout = 3 * time.Second // of the workers: what a frozen one costs
	workerMap    = `version: 1
lease: 1s # the shortest time until a sweep is settled, for which the judge has to wait
entities:
  thing: {keys: ["chaos:thing:{id}"]}
  many:  {params: [n], keys: ["chaos:thing:{id}", "chaos:part:{id}:{n}"], hold: 2s}
  shelf: {patterns: ["chaos:shelf:{id}:*"]}
params:
  n: {}
`
)

// otherMap has another hold and one more entity.
var otherMap = strings.Replace(workerMap, "hold: 2s}", "hold: 300ms}\n  spare: {keys: [\"chaos:spare:{id}\"]}", 1)

// newStage starts the servers. dir takes the library that sets their clocks.
func newStage(ctx context.Context, cfg Config, dir string) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if cfg.Topology == OneServer {
		err = s.single(ctx, cfg.Flavor)
	} else {
		err = s.several(ctx, cfg, dir)
	}
	if err != nil {
		return s, err
	}
	library, err := clock.Library(dir)
	if err != nil {
		return s, err
	}
	for i := range s.redis {
		if s.redis[i], err = rig.StartNode(ctx, rig.NodeOptions{Library: library}); err != nil {
			return s, err
		}
	}
	if s.toRedis, err = servers.NewLink("redis", s.redis[0].Server.Addr()); err != nil {
		return s, err
	}
	if s.toMaster, err = servers.NewLink("replication", s.redis[0].Server.Addr()); err != nil {
		return s, err
	}
	return s, s.redis[1].Follow(ctx, s.toMaster.Addr())
}

// single starts one server, and links to it.
func (s *stage) single(ctx context.Context, flavor servers.Kind) (err error) {
	logs := ""
	if s.disk, s.diskError = servers.NewDisk(diskSize); s.diskError == nil {
		logs = s.disk.Dir
	}
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: flavor, Args: slices.Concat(rig.MySQLArgs, binaryLog(logs))}); err != nil {
		return err
	}
	return s.connect(ctx, []string{s.mysql.DSN(database)}, nil, s.mysql.Addr())
}

// several starts a cluster, and links to it: to its proxy, or to two of the nodes.
func (s *stage) several(ctx context.Context, cfg Config, dir string) (err error) {
	if s.cluster, err = newCluster(ctx, cfg.Flavor, cfg.Topology, dir); err != nil {
		return err
	}
	nodes := s.cluster.nodes
	s.mysql = nodes[0]
	if p := s.cluster.proxy; p != nil {
		return s.connect(ctx, []string{"root@tcp(" + p.addr + ")/" + database}, s.cluster.fresh(), p.addr)
	}
	if s.toOther, err = servers.NewLink("other", nodes[1].Addr()); err != nil {
		return err
	}
	var dsns []string
	for _, node := range nodes {
		dsns = append(dsns, node.DSN(database))
	}
	return s.connect(ctx, dsns, s.cluster.fresh(), nodes[0].Addr())
}

// connect prepares the database, and connects the checker to the first of the places where the shop
// writes, and the workers to an address.
func (s *stage) connect(ctx context.Context, dsns []string, ofChecker map[string]string, workers string) (err error) {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if s.db, err = open(dsns[0], ofChecker); err != nil {
		return err
	}
	for _, dsn := range dsns {
		shop, err := open(dsn, nil)
		if err != nil {
			return err
		}
		s.shops = append(s.shops, shop)
	}
	s.toMySQL, err = servers.NewLink("mysql", workers)
	return err
}

// prepare makes the database, the ledger and the workers' account.
func (s *stage) prepare(ctx context.Context) error {
	return rig.Prepare(ctx, s.mysql,
		"CREATE DATABASE "+database,
		"CREATE TABLE "+database+".chaos_ledger (tx BIGINT UNSIGNED NOT NULL PRIMARY KEY) ENGINE = InnoDB",
		"CREATE USER 'unstale'@'%' IDENTIFIED BY 'chaos'",
		"GRANT ALL ON "+database+".* TO 'unstale'@'%'",
	)
}

// open returns connections of the shop or the checker, whose sessions have settings.
func open(dsn string, settings map[string]string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	maps.Copy(cfg.Params, settings)
	cfg.MultiStatements = true // one round trip for a whole transaction
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 2*time.Second, 30*time.Second, 30*time.Second
	cfg.Logger = &mysql.NopLogger{} // errors are expected
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (s *stage) close() error {
	var errs []error
	for _, l := range []*servers.Link{s.toMySQL, s.toOther, s.toRedis, s.toMaster} {
		if l != nil {
			l.Close()
		}
	}
	for _, db := range append(s.shops, s.db) {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	for _, n := range s.redis {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	switch {
	case s.cluster != nil:
		errs = append(errs, s.cluster.close())
	case s.mysql != nil:
		errs = append(errs, s.mysql.Close())
	}
	if s.disk != nil {
		errs = append(errs, s.disk.Close())
	}
	return errors.Join(errs...)
}

// workerDSN returns how worker n reaches the database.
func (s *stage) workerDSN(n int) string {
	link := s.toMySQL
	if s.toOther != nil && n%2 == 1 {
		link = s.toOther
	}
	return account + "@tcp(" + link.Addr() + ")/" + database
}

// workerEnv returns the workers' settings, and how they reach the stage.
func (s *stage) workerEnv() []string {
	return []string{
		"UNSTALE_CLAIM_TIMEOUT=" + claimTimeout.String(), "UNSTALE_JOURNAL_RETENTION=10m", "UNSTALE_RETRY_DELAY=100ms",
		"MYSQL_DSN=" + s.workerDSN(0),
		"REDIS_URL=redis://" + s.toRedis.Addr() + "/0",
	}
}

// cache returns the client of the present master.
func (s *stage) cache() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis[s.master].Client
}

// roles returns the present master and its replica.
func (s *stage) roles() (master, replica *rig.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis[s.master], s.redis[1-s.master]
}

// swap makes the replica the master for the shop.
func (s *stage) swap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = 1 - s.master
}

// lost records that keys that were set between from and now may be gone.
func (s *stage) lost(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, window{from, time.Now()})
}

// takeLosses returns the windows since the last call.
func (s *stage) takeLosses() []window {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.losses
	s.losses = nil
	return w
}

// synced waits until the replica has everything that was written before the call, and returns when
// it began.
func (s *stage) synced(ctx context.Context) (time.Time, error) {
	master, replica := s.roles()
	return replica.CaughtUp(ctx, master, "chaos:marker")
}
