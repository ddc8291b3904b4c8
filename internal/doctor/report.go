package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/internal/schema"
)

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
func Prove(ctx context.Context, config *mysql.Config, e *Exam, options keyspace.Options) (r ProofReport, err error) {
	if err := proofReach(ctx, e); err != nil {
		return r, err
	}
	err = schema.Locked(ctx, e.MySQL.SchemaDB(), "prove", func(string) {}, func() (err error) {
		r, err = run(ctx, config, e, options)
		return err
	})
	return r, err
}

// proofReach returns an error unless both servers answer and the client of Redis fits its mode.
func proofReach(ctx context.Context, e *Exam) error {
	if err := errors.Join(e.MySQL.Ping(ctx), e.Redis.Nodes.Ping(ctx)); err != nil {
		return err
	}
	var targets []keyspace.Target // a node of a Cluster has only some of them
	for i := range 64 {
		targets = append(targets, keyspace.Target{Key: fmt.Sprint("unstale-prove:reach:", i)})
	}
	_, err := e.Redis.Unlinker.Unlink(ctx, targets)
	var o *keyspace.Outage
	if errors.As(err, &o) && o.State == keyspace.StateWrongMode {
		return err
	}
	return nil // the steps report other errors
}

func run(ctx context.Context, config *mysql.Config, e *Exam, options keyspace.Options) (r ProofReport, err error) {
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
	return r, errors.Join(ctx.Err(), p.close(ctx))
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
		if text, err := p.exam.MySQL.Variable(ctx, name); err == nil {
			database = strings.TrimSpace(database + " " + text)
		}
	}
	masters := 0
	_ = p.exam.Redis.Nodes.EachMaster(ctx, func(c *redis.Client) error { // it may hide INFO
		masters++
		facts := redisclient.Facts(c.Info(ctx, "server").Val())
		if cache = "Redis " + facts["redis_version"]; facts["valkey_version"] != "" {
			cache = "Valkey " + facts["valkey_version"]
		}
		return nil
	})
	if p.exam.Redis.Nodes.IsCluster() {
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
