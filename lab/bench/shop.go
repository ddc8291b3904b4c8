package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// A shop is a database with an outbox, and a cache. The servers are private, or given; on given
// servers it has its own database.
type shop struct {
	*redisServer
	db      *sql.DB
	dsn     string
	version string
	private *servers.MySQL // nil: a given one
	name    string         // of the database
	share   float64        // of the time of Redis, for sweeps; 0: the default
}

func openShop(ctx context.Context, cfg Config) (*shop, error) {
	s := &shop{name: "unstale_bench_" + strings.ToLower(rand.Text()[:8])}
	err := s.open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shop) open(ctx context.Context, cfg Config) (err error) {
	if s.redisServer, err = openRedis(ctx, cfg.RedisURL); err != nil {
		return err
	}
	given := cfg.MySQLDSN
	if given == "" {
		if s.private, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor}); err != nil {
			return err
		}
		given = s.private.DSN("")
	}
	dsn, err := mysql.ParseDSN(given)
	if err != nil {
		return fmt.Errorf("mysql dsn: %w; must be user:password@tcp(host:3306)/", err)
	}
	dsn.DBName, dsn.Logger, dsn.InterpolateParams = "", &mysql.NopLogger{}, true
	if err := s.onServer(ctx, dsn, "CREATE DATABASE "+s.name+" CHARACTER SET utf8mb4"); err != nil {
		return err
	}
	dsn.DBName, dsn.ParseTime, dsn.Loc = s.name, true, time.UTC
	s.dsn = dsn.FormatDSN()
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return err
	}
	s.db = sql.OpenDB(connector)
	if err := s.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.version); err != nil {
		return err
	}
	_, err = migrations.Up(ctx, s.db)
	return err
}

// onServer executes a statement without a database.
func (s *shop) onServer(ctx context.Context, dsn *mysql.Config, stmt string) error {
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.ExecContext(ctx, stmt)
	return errors.Join(err, db.Close())
}

// machine names the servers too.
func (s *shop) machine() Machine {
	return ThisMachine("MySQL "+s.version, "Redis "+s.redisServer.version)
}

// close removes what was made, and ends private servers.
func (s *shop) close() error {
	var errs []error
	if s.db != nil {
		if s.private == nil {
			_, err := s.db.ExecContext(context.Background(), "DROP DATABASE "+s.name)
			errs = append(errs, err)
		}
		errs = append(errs, s.db.Close())
	}
	if s.private != nil {
		errs = append(errs, s.private.Close())
	}
	if s.redisServer != nil {
		errs = append(errs, s.redisServer.close())
	}
	return errors.Join(errs...)
}

// enqueue inserts n rows as plain SQL does, and empties the journal.
func (s *shop) enqueue(ctx context.Context, n int, row func(i int) (entity, id string, params any)) error {
	const part = 2000
	for from := 0; from < n; from += part {
		to := min(from+part, n)
		args := make([]any, 0, 3*part)
		for i := from; i < to; i++ {
			entity, id, params := row(i)
			args = append(args, entity, id, params)
		}
		stmt := "INSERT INTO cache_outbox (entity, entity_id, params) VALUES " + strings.Repeat("(?,?,?),", to-from-1) + "(?,?,?)"
		if _, err := s.db.ExecContext(ctx, stmt, args...); err != nil {
			return err
		}
	}
	_, err := s.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_journal")
	return err
}

// isEmpty makes sure that no row is left in the outbox.
func (s *shop) isEmpty(ctx context.Context) error {
	var left int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox").Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d rows are left", left)
	}
	return err
}

// coupon returns a row of one exact key.
func coupon(i int) (entity, id string, params any) { return "coupon", fmt.Sprintf("code-%07d", i), nil }

// couponKey returns the only key of a coupon.
func couponKey(id string) string { return "zahraah:prod:coupon:" + id }

// couponMap knows coupons alone.
const couponMap = "version: 1\nentities: {coupon: {keys: [\"zahraah:prod:coupon:{id}\"]}}\n"

// pools returns a worker's side of MySQL, without a worker.
func (s *shop) pools(name string) (*store.Store, error) {
	at, err := session.ParseDSN(s.dsn)
	if err != nil {
		return nil, err
	}
	return store.Open(session.Config{MySQL: at, Worker: name})
}

// env is the environment of maps.
func env(name string) (string, bool) {
	if name == "APP_ENV" {
		return "prod", true
	}
	return "", false
}

// newWorker makes a worker with a map, as unstale run sets it up.
func (s *shop) newWorker(name, mapText string, cfg worker.Config) (*worker.Worker, error) {
	m, err := invalidation.Parse(name+".yaml", []byte(mapText), env)
	if err != nil {
		return nil, err
	}
	if cfg.MySQL, err = mysql.ParseDSN(s.dsn); err != nil {
		return nil, err
	}
	if cfg.Redis == nil {
		if cfg.Redis, err = redisurl.Parse(s.url, false); err != nil {
			return nil, err
		}
	}
	cfg.Name, cfg.Map, cfg.Logger, cfg.RedisTimeout, cfg.SweepShare = name, m, silence, time.Second, s.share
	return worker.New(cfg)
}
