package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
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
	inputs *Inputs
	db     *sql.DB // of inputs
	redis  redis.UniversalClient
	worker *worker.Worker
	prefix string
	keys   []string // that may exist
	news   *redis.PubSub
	saw    string // by the current step
}

// open returns an error unless the database is empty.
func open(ctx context.Context, config *mysql.Config, e *Inputs, o keyspace.Options) (p *proof, err error) {
	p = &proof{inputs: e, db: e.MySQL.DB(), redis: e.Redis.Nodes.Client(), prefix: "unstale-prove:" + rand.Text()[:8]}
	if e.Map, err = invalidation.Parse("map of the proof", []byte(strings.ReplaceAll(mapText, "PREFIX", p.prefix)), nil); err != nil {
		return nil, err
	}
	e.MapError, e.Wake, e.AuditRedis, e.mayExceed = nil, "", e.Redis.Nodes, true
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

// cleanUp removes the tables and the keys, even if ctx has ended.
func (p *proof) cleanUp(ctx context.Context) error {
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

func (p *proof) writeOld(ctx context.Context, ids ...string) (err error) {
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

// checks are the checks of package doctor that a report includes.
var checks = []string{"schema", "mysql-rights", "mysql-settings", "mysql-connections", "redis-rights", "clocks", "redis-memory"}

// A ProofReport is the result of a proof.
type ProofReport struct {
	MySQL    string    `json:"mysql"` // version, as the server reports it
	Redis    string    `json:"redis"`
	Worst    Severity  `json:"worst"`
	Findings []Finding `json:"findings"`
}

// Prove tries all steps with the connections of e, whose MySQL is the empty database of config.
// options are the options of e.Redis. If a step fails, the others are still tried; an error is
// about the database, a server that cannot be used at all, or what could not be removed. Processes
// take turns in a database.
func Prove(ctx context.Context, config *mysql.Config, e *Inputs, options keyspace.Options) (r ProofReport, err error) {
	if err := proofReach(ctx, e); err != nil {
		return r, err
	}
	err = schema.Locked(ctx, e.MySQL.SchemaDB(), "prove", func(string) {}, func() (err error) {
		r, err = proveAll(ctx, config, e, options)
		return err
	})
	return r, err
}

// proofReach returns an error unless both servers answer and the client of Redis fits its mode.
func proofReach(ctx context.Context, e *Inputs) error {
	if err := errors.Join(e.MySQL.Ping(ctx), e.Redis.Nodes.Ping(ctx)); err != nil {
		return err
	}
	var targets []keyspace.Target // a node of a Cluster has only some of them
	for i := range 64 {
		targets = append(targets, keyspace.Target{Key: fmt.Sprint("unstale-prove:reach:", i)})
	}
	_, err := e.Redis.Unlinker.Unlink(ctx, targets)
	if o, ok := errors.AsType[*keyspace.Outage](err); ok && o.State == keyspace.StateWrongMode {
		return err
	}
	return nil // the steps report other errors
}

func proveAll(ctx context.Context, config *mysql.Config, e *Inputs, options keyspace.Options) (r ProofReport, err error) {
	p, err := open(ctx, config, e, options)
	if err != nil {
		return r, err
	}
	r.MySQL, r.Redis = p.versions(ctx)
	for i, s := range steps {
		f := p.try(ctx, s)
		r.Findings = append(r.Findings, f)
		if i == 0 && f.Severity != Info {
			break
		}
	}
	r.Findings = append(r.Findings, Examine(ctx, e, checks...)...)
	r.Worst = Worst(r.Findings)
	hosts := append([]string{config.Addr}, options.Redis.Addrs...)
	_ = e.Redis.Nodes.EachMaster(ctx, func(c *redis.Client) error { hosts = append(hosts, redisclient.Address(c)); return nil })
	hide := hider(hosts)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title, f.Evidence, f.Cure = hide(f.Title), distinct(hide(f.Evidence)), hide(f.Cure)
	}
	return r, errors.Join(ctx.Err(), p.cleanUp(ctx))
}

func (p *proof) try(ctx context.Context, s step) Finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.saw = ""
	if err := s.run(p, ctx); err != nil {
		return Finding{Check: s.name, Severity: s.severity, Title: "not so: " + s.property, Evidence: err.Error(), Cure: s.cure}
	}
	return Finding{Check: s.name, Severity: Info, Title: s.property, Evidence: strings.TrimSpace(p.saw)}
}

// distinct returns text without lines that repeat earlier ones.
func distinct(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (p *proof) versions(ctx context.Context) (database, cache string) {
	for _, name := range []string{"@@version", "@@version_comment", "@@aurora_version"} {
		if text, err := p.inputs.MySQL.Variable(ctx, name); err == nil {
			database = strings.TrimSpace(database + " " + text)
		}
	}
	masters := 0
	_ = p.inputs.Redis.Nodes.EachMaster(ctx, func(c *redis.Client) error { // it may hide INFO
		masters++
		facts := redisclient.Facts(c.Info(ctx, "server").Val())
		if cache = "Redis " + facts["redis_version"]; facts["valkey_version"] != "" {
			cache = "Valkey " + facts["valkey_version"]
		}
		return nil
	})
	if p.inputs.Redis.Nodes.IsCluster() {
		cache += fmt.Sprintf(", Cluster, masters: %d", masters)
	}
	return database, cache
}

var (
	ipAddress = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-fA-F:.]+\](:\d+)?`)
	account   = regexp.MustCompile("['\"`][^'\"`\\s]*['\"`]@['\"`][^'\"`\\s]*['\"`]")
)

// hider returns a function that replaces hosts, addresses and accounts.
func hider(addrs []string) func(string) string {
	var known []string
	for _, addr := range addrs {
		known = append(known, addr, "SERVER")
		if host, _, err := net.SplitHostPort(addr); err == nil && strings.Contains(host, ".") { // a short one may be a word
			known = append(known, host, "SERVER")
		}
	}
	hosts := strings.NewReplacer(known...)
	return func(text string) string {
		return ipAddress.ReplaceAllString(account.ReplaceAllString(hosts.Replace(text), "ACCOUNT"), "SERVER")
	}
}

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
	done, err := migrations.Up(ctx, p.inputs.MySQL.SchemaDB())
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
	for i, from := range []*sql.DB{p.db, p.inputs.MySQL.Claims.DB, p.inputs.MySQL.Claims.DB} {
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
	if err := errors.Join(p.writeOld(ctx, ids...), p.writeOld(ctx, "early"), outbox.Enqueue(ctx, tx, things("early")...)); err != nil {
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
	c := &capture.Capturer{DB: p.inputs.MySQL.SchemaDB(), Captures: p.inputs.Map.Captures(), Notify: func(string) {}}
	err := errors.Join(c.Apply(ctx, func(capture.Change) {}), p.writeOld(ctx, "2"))
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
