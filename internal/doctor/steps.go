package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

// A step tries one property.
type step struct {
	name, property string
	severity       Severity // if it does not hold
	cure           string
	run            func(*proof, context.Context) error
}

const cureServer = "connect to the primary itself; if it does, send in this report"

// steps are in the order of their execution. Those after the first one need its tables.
var steps = []step{
	{"migrations", "the tables can be created", Critical, "grant the privileges of migrations: docs/accounts.md", (*proof).migrate},
	{"locks", "claims pass locked rows, and the server ends an idle session, which frees its rows", Critical, cureServer, (*proof).locks},
	{"commits", "keys go after each commit, in any order of commits, and messages name them", Critical, cureServer, (*proof).commits},
	{"scripts", "the scripts of package cache store values, but none from before an invalidation", Critical, "grant the commands of readers: docs/accounts.md", (*proof).scripts},
	{"triggers", "triggers can insert rows (capture)", Warning, "without capture, applications insert the rows", (*proof).triggers},
	{"latency", "round trips", Warning, cureServer, (*proof).latency},
}

func (p *proof) migrate(ctx context.Context) error {
	began := time.Now()
	done, err := migrations.Up(ctx, p.exam.MySQL.SchemaDB())
	p.saw = fmt.Sprintf("%d migrations in %s", len(done), time.Since(began).Round(time.Millisecond))
	if err == nil {
		_, err = p.db.ExecContext(ctx, "CREATE TABLE unstale_prove (id INT PRIMARY KEY) ENGINE=InnoDB")
	}
	return err
}

// locks locks a row in a session that then vanishes.
func (p *proof) locks(ctx context.Context) error {
	const next = "SELECT id FROM unstale_prove ORDER BY id LIMIT 1 FOR UPDATE"
	if _, err := p.db.ExecContext(ctx, "INSERT INTO unstale_prove VALUES (1), (2)"); err != nil {
		return err
	}
	var txs [3]*sql.Tx
	for i, from := range []*sql.DB{p.db, p.exam.MySQL.Claims, p.exam.MySQL.Claims} {
		tx, err := from.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		txs[i] = tx
	}
	began := time.Now()
	var ids [3]int
	_, err := txs[0].ExecContext(ctx, "SET SESSION wait_timeout = 1")
	if err = errors.Join(err, txs[0].QueryRowContext(ctx, next).Scan(&ids[0]), txs[1].QueryRowContext(ctx, next+" SKIP LOCKED").Scan(&ids[1])); err != nil {
		return err
	}
	err = txs[2].QueryRowContext(ctx, next).Scan(&ids[2]) // waits
	p.saw = fmt.Sprintf("free after %s with wait_timeout=1", time.Since(began).Round(100*time.Millisecond))
	if err == nil && ids != [3]int{1, 2, 1} {
		err = fmt.Errorf("three claims got the rows %v, wanted 1, 2, 1", ids)
	}
	return err
}

// commits has 64 keys, so each master of a Cluster has some.
func (p *proof) commits(ctx context.Context) error {
	if _, err := p.news.Receive(ctx); err != nil { // the subscription
		return fmt.Errorf("subscribe: %w", err)
	}
	var ids []string
	for i := range 64 {
		ids = append(ids, fmt.Sprint("late-", i))
	}
	tx, err := p.db.BeginTx(ctx, nil) // its row has the first ID
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := errors.Join(p.set(ctx, ids...), p.set(ctx, "early"), outbox.Enqueue(ctx, tx, things("early")...)); err != nil {
		return err
	}
	if err := errors.Join(p.commit(ctx, ids...), p.work(ctx), p.left(ctx, false, ids...), p.left(ctx, true, "early"), tx.Commit()); err != nil {
		return err
	}
	p.saw = fmt.Sprint(len(ids)+1, " rows")
	return errors.Join(p.work(ctx), p.left(ctx, false, "early"), p.hear(ctx, append(ids, "early")...))
}

// scripts fills a key twice, the second time after an invalidation.
func (p *proof) scripts(ctx context.Context) error {
	key := p.prefix + ":filled"
	lease, _ := protocol.LeaseKey(key)
	hold, _ := protocol.HoldKey(key)
	names := []string{lease, hold, key}
	p.keys = append(p.keys, key)
	for _, want := range []int{1, 0} {
		got, err := p.redis.Eval(ctx, protocol.LeaseScript, names, "prove", 60_000, "*").Slice()
		if err != nil {
			return err
		}
		if want == 0 {
			err = errors.Join(p.commit(ctx, "filled"), p.work(ctx))
		}
		stored, failed := p.redis.Eval(ctx, protocol.FillScript, names, got[1], "value", 60_000).Int()
		if err = errors.Join(err, failed); err != nil || stored != want {
			return errors.Join(err, fmt.Errorf("lease %v: %d values were stored, wanted %d", got[0], stored, want))
		}
	}
	return p.left(ctx, false, "filled")
}

func (p *proof) triggers(ctx context.Context) error {
	c := &capture.Capturer{DB: p.exam.MySQL.SchemaDB(), Captures: p.exam.Map.Captures(), Notify: func(string) {}}
	err := errors.Join(c.Apply(ctx, func(capture.Change) {}), p.set(ctx, "2"))
	if err == nil {
		_, err = p.db.ExecContext(ctx, "DELETE FROM unstale_prove WHERE id = 2")
	}
	return errors.Join(err, p.work(ctx), p.left(ctx, false, "2"))
}

func (p *proof) latency(ctx context.Context) (err error) {
	for name, trip := range map[string]func() error{
		"MySQL":           func() error { return p.db.PingContext(ctx) },
		"Redis":           func() error { return p.redis.Ping(ctx).Err() },
		"commit of a row": func() error { return p.commit(ctx, "timed") },
	} {
		var took [21]time.Duration
		for i := range took {
			began := time.Now()
			err = errors.Join(err, trip())
			took[i] = time.Since(began)
		}
		slices.Sort(took[:])
		p.saw += fmt.Sprintf("%s: median %s, worst %s\n", name, took[10].Round(10*time.Microsecond), took[20].Round(10*time.Microsecond))
	}
	return err
}
