package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

const (
	patience = 30 * time.Second // with one step, and with the removal
	mapText  = `version: 1
publish: {channel: "PREFIX:invalidate"}
entities: {thing: {keys: ["PREFIX:{id}"]}}
capture: {unstale_prove: {entity: thing, id: id}}
`
)

// A proof is the state that its steps share.
type proof struct {
	exam   *Exam
	db     *sql.DB // of exam
	redis  redis.UniversalClient
	worker *worker.Worker
	prefix string
	keys   []string // that may exist
	news   *redis.PubSub
	saw    string // by the current step
}

// open returns an error unless the database is empty.
func open(ctx context.Context, config *mysql.Config, e *Exam, o keyspace.Options) (p *proof, err error) {
	p = &proof{exam: e, db: e.MySQL.DB(), redis: e.Redis.Nodes.Client(), prefix: "unstale-prove:" + rand.Text()[:8]}
	if e.Map, err = invalidation.Parse("map of the proof", []byte(strings.ReplaceAll(mapText, "PREFIX", p.prefix)), nil); err != nil {
		return nil, err
	}
	e.MapError, e.Wake, e.AuditRedis = nil, "", e.Redis.Nodes
	p.worker, err = worker.New(worker.Config{
		MySQL: config, Redis: o.Redis, RedisTimeout: o.Timeout, RedisShardedPubSub: o.ShardedPubSub, MessageKey: o.MessageKey, Map: e.Map,
		Name: "prove", WakeChannel: "-", JournalRetention: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	if tables, err := p.tables(ctx, "%"); err != nil {
		return nil, err
	} else if tables != "" {
		return nil, fmt.Errorf("the database %s has tables; create an empty one, and name it in --mysql-dsn", config.DBName)
	}
	subscribe := p.redis.Subscribe
	if o.ShardedPubSub {
		subscribe = p.redis.SSubscribe
	}
	p.news = subscribe(ctx, e.Map.Channel())
	return p, nil
}

// Contract: the dictionary, without a lock. At most 1024 bytes, which is enough for unstale's.
const tablesSQL = "SELECT COALESCE(GROUP_CONCAT('`', table_name, '`'), '') FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE ?"

func (p *proof) tables(ctx context.Context, like string) (list string, err error) {
	err = p.db.QueryRowContext(ctx, tablesSQL, like).Scan(&list)
	return list, err
}

// close removes the tables and the keys, even if ctx has ended.
func (p *proof) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err := p.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range p.keys {
			lease, _ := protocol.LeaseKey(key)
			pipe.Unlink(ctx, key)
			pipe.Unlink(ctx, lease)
		}
		return nil
	})
	tables, listErr := p.tables(ctx, `cache\_outbox%`) // and none that another client has made since
	_, dropErr := p.db.ExecContext(ctx, "DROP TABLE IF EXISTS unstale_prove")
	if tables != "" {
		_, err := p.db.ExecContext(ctx, "DROP TABLE "+tables)
		dropErr = errors.Join(dropErr, err)
	}
	if err = errors.Join(err, listErr, dropErr); err != nil {
		err = fmt.Errorf("remove the tables and keys of the proof: %w", err)
	}
	return errors.Join(err, p.news.Close())
}

func (p *proof) set(ctx context.Context, ids ...string) (err error) {
	for _, id := range ids {
		p.keys = append(p.keys, p.prefix+":"+id)
		err = errors.Join(err, p.redis.Set(ctx, p.prefix+":"+id, "old", 10*time.Minute).Err())
	}
	return err
}

// left returns an error unless the keys of ids exist, or are gone.
func (p *proof) left(ctx context.Context, there bool, ids ...string) error {
	for _, id := range ids {
		if n, err := p.redis.Exists(ctx, p.prefix+":"+id).Result(); err != nil {
			return err
		} else if (n == 1) != there {
			return fmt.Errorf("the key of the row %s: still there is %t, wanted %t", id, n == 1, there)
		}
	}
	return nil
}

// things returns rows of the outbox.
func things(ids ...string) (rows []outbox.Invalidation) {
	for _, id := range ids {
		rows = append(rows, outbox.Invalidation{Entity: "thing", ID: id})
	}
	return rows
}

func (p *proof) commit(ctx context.Context, ids ...string) error {
	return outbox.InTx(ctx, p.db, func(tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, things(ids...)...) })
}

func (p *proof) work(ctx context.Context) error {
	_, err := p.worker.DrainRows(ctx)
	return err
}

// hear waits until messages have named the key of each of ids.
func (p *proof) hear(ctx context.Context, ids ...string) error {
	for len(ids) > 0 {
		heard, err := p.news.ReceiveMessage(ctx)
		if err != nil {
			return fmt.Errorf("no message named the keys of %d rows: %w", len(ids), err)
		}
		if m, err := protocol.DecodeMessage([]byte(heard.Payload)); err == nil { // otherwise a heartbeat
			ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(m.Keys, p.prefix+":"+id) })
		}
	}
	return nil
}
