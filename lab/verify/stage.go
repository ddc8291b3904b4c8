package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

const (
	database     = "verify"
	wakeChannel  = protocol.DefaultWakeChannel
	claimTimeout = 3 * time.Second // of the workers: the cost of a frozen worker
	batchRows    = 500
)

// A stage holds the servers and the workers.
type stage struct {
	mysql   *servers.MySQL
	db      *sql.DB
	redis   *rig.Node    // the master
	spare   *rig.Node    // to be its replica
	cluster *rig.Cluster // in place of these and of links
	client  redis.UniversalClient
	toRedis *servers.Link // for all connections that must follow a failover
	toHear  *servers.Link // of the readers' subscriptions
	toSpare *servers.Link // of replication
	fleet   *rig.Fleet
	sources []string
}

func newStage(ctx context.Context, cfg Config, dir string) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: rig.MySQLArgs}); err != nil {
		return s, err
	}
	if err := s.startRedis(ctx, cfg, dir); err != nil {
		return s, err
	}
	if err := s.prepare(ctx); err != nil {
		return s, err
	}
	s.fleet, err = rig.New(cfg.Binary, dir, workerMap, []string{
		"UNSTALE_CLAIM_TIMEOUT=" + claimTimeout.String(), "UNSTALE_JOURNAL_RETENTION=10m", "UNSTALE_RETRY_DELAY=100ms",
		"MYSQL_DSN=unstale:verify@tcp(" + s.mysql.Addr() + ")/" + database, "REDIS_URL=" + s.url(),
	})
	if err != nil {
		return s, err
	}
	if cfg.UntilDiffers || cfg.UntilFound {
		s.fleet.Set("UNSTALE_SPOT_CHECKS", "0")
	}
	if _, err := s.fleet.Call(ctx, "migrate", "up"); err != nil {
		return s, err
	}
	var source string
	if err := s.db.QueryRowContext(ctx, "SELECT id FROM cache_outbox_source").Scan(&source); err != nil {
		return s, fmt.Errorf("read the outbox's id: %w", err)
	}
	s.sources = []string{source}
	for range cfg.Workers {
		if err := s.fleet.Start(batchRows); err != nil {
			return s, err
		}
	}
	return s, nil
}

// startRedis starts two servers, or a Cluster, with clocks that can be set if a phase needs them.
func (s *stage) startRedis(ctx context.Context, cfg Config, dir string) (err error) {
	o := rig.NodeOptions{}
	if slices.ContainsFunc(phases, func(p phase) bool { return p.jumps && slices.Contains(cfg.Phases, p.name) }) {
		if o.Library, err = clock.Library(dir); err != nil {
			return err
		}
	}
	if cfg.Cluster {
		if s.cluster, err = rig.StartCluster(ctx, o.Library); err != nil {
			return err
		}
		s.client = s.cluster.Client
		return nil
	}
	for _, node := range []**rig.Node{&s.redis, &s.spare} {
		if *node, err = rig.StartNode(ctx, o); err != nil {
			return err
		}
	}
	for name, link := range map[string]**servers.Link{"redis": &s.toRedis, "subscriptions": &s.toHear, "replication": &s.toSpare} {
		if *link, err = servers.NewLink(name, s.redis.Server.Addr()); err != nil {
			return err
		}
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.toRedis.Addr()})
	return nil
}

// url returns the address of Redis for workers.
func (s *stage) url() string {
	if s.cluster != nil {
		return "redis+cluster://" + strings.Join(s.cluster.Addrs(), ",")
	}
	return s.redis.Server.URL()
}

// version returns the version of Redis.
func (s *stage) version() string {
	if s.cluster != nil {
		return "Cluster " + s.cluster.Nodes[0].Server.Version()
	}
	return s.redis.Server.Version()
}

// differences returns the keys and the outcomes of the shadow reads that workers have confirmed.
func (s *stage) differences(ctx context.Context) (found []string, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT CONCAT(cache_key, ' ', outcome) FROM cache_outbox_shadow ORDER BY confirmed_at")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		text := ""
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, rows.Err()
}

// prepare creates the database, the table of versions and the workers' account.
func (s *stage) prepare(ctx context.Context) error {
	err := rig.Prepare(ctx, s.mysql,
		"CREATE DATABASE "+database,
		"CREATE TABLE "+database+".verify_rows (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, version BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB",
		"CREATE USER 'unstale'@'%' IDENTIFIED BY 'verify'",
		"GRANT ALL ON "+database+".* TO 'unstale'@'%'",
	)
	if err != nil {
		return err
	}
	s.db, err = sql.Open("mysql", rig.DSN(s.mysql, database))
	if err != nil {
		return err
	}
	s.db.SetMaxIdleConns(32)
	return nil
}

// lead makes workers reach Redis by an address, from now on.
func (s *stage) lead(ctx context.Context, addr string) error {
	s.fleet.Set("REDIS_URL", "redis://"+addr+"/0")
	count := 0
	for m := s.fleet.Pick(0); m != nil; m = s.fleet.Pick(0) {
		count++
		if err := m.Signal(ctx, syscall.SIGTERM, true); err != nil {
			return err
		}
	}
	for range count {
		if err := s.fleet.Start(batchRows); err != nil {
			return err
		}
	}
	return nil
}

// rows creates the rows of a turn, at version 0.
func (s *stage) rows(ctx context.Context, first, keys int) error {
	values := make([]string, keys)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 0)", first+i)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO verify_rows (id, version) VALUES "+strings.Join(values, ",")); err != nil {
		return fmt.Errorf("make rows: %w", err)
	}
	return nil
}

func (s *stage) close() error {
	var errs []error
	if s.fleet != nil {
		s.fleet.KillAll()
	}
	for _, link := range []*servers.Link{s.toRedis, s.toHear, s.toSpare} {
		if link != nil {
			link.Close()
		}
	}
	if s.client != nil && s.cluster == nil {
		errs = append(errs, s.client.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	for _, node := range []*rig.Node{s.redis, s.spare} {
		if node != nil {
			errs = append(errs, node.Close())
		}
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.mysql != nil {
		errs = append(errs, s.mysql.Close())
	}
	return errors.Join(errs...)
}
