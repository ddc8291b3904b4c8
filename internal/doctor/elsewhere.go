package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
)

// An elsewhere means that an account for an audit leads to another server than the worker's, so its
// findings do not concern workers.
type elsewhere struct {
	flag, than string
	replica    bool // of the worker's server
}

func (o *elsewhere) Error() string {
	text := o.flag + " leads to another server than " + o.than
	if o.replica {
		text += ", a replica of it"
	}
	return text
}

// compare checks whether the accounts for an audit lead to the worker's servers, if both were given
// and answer.
func (e *Exam) compare(ctx context.Context) {
	e.elsewhere, e.unplaced = map[need]*elsewhere{}, map[need]error{}
	note := func(worker, audit need, find func(context.Context) (*elsewhere, error)) {
		if e.reached[worker] != nil || e.reached[audit] != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, reachLimit)
		defer cancel()
		if other, err := find(limited); err != nil {
			e.unplaced[audit] = err
		} else if other != nil {
			e.elsewhere[audit] = other
		}
	}
	note(aMySQL, auditMySQL, e.otherMySQL)
	note(aRedis, auditRedis, e.otherRedis)
}

// placed reports accounts for an audit that lead to another server.
func (e *Exam) placed() (all []Finding) {
	for _, n := range []need{auditMySQL, auditRedis} {
		other := e.elsewhere[n]
		switch {
		case e.unplaced[n] != nil:
			all = append(all, unseen("whether "+string(n)+" leads to the server of the workers", e.unplaced[n], "make it by 'unstale doctor --help'"))
		case other == nil:
		case other.replica:
			all = append(all, found(Info, "what concerns the server of the workers is unknown", other.Error(), "to look at that server, name it in "+other.flag))
		default:
			all = append(all, found(Warning, "the audit looks at a server that is not the workers'", other.Error(), "name the same server in "+other.flag+" and in "+other.than))
		}
	}
	return all
}

// Contract: no lock; a few variables, which need no privilege. server_uuid is MySQL's, server_uid
// MariaDB's.
const whichServerSQL = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'socket', 'server_id', 'server_uuid', 'server_uid', 'datadir')`

func whichServer(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := queryRows(ctx, db, whichServerSQL)
	if err != nil {
		return nil, fmt.Errorf("ask which server it is: %w", err)
	}
	all := map[string]string{}
	for _, r := range rows {
		all[r["Variable_name"]] = r["Value"]
	}
	return all, nil
}

func (e *Exam) otherMySQL(ctx context.Context) (*elsewhere, error) {
	audited, err := whichServer(ctx, e.AuditMySQL.DB())
	if err != nil {
		return nil, err
	}
	workers, err := whichServer(ctx, e.MySQL.DB())
	if err != nil || maps.Equal(audited, workers) {
		return nil, err
	}
	other := &elsewhere{flag: "--audit-mysql-dsn", than: "--mysql-dsn"}
	// a server that does not report its sources counts as no replica
	sources, _ := sourcesOf(ctx, e.AuditMySQL.DB())
	for _, s := range sources {
		uuid, id, port := s.first("Source_UUID", "Master_UUID"), s.first("Source_Server_Id", "Master_Server_Id"), s.first("Source_Port", "Master_Port")
		if uuid != "" && uuid == workers["server_uuid"] || uuid == "" && id == workers["server_id"] && port == workers["port"] {
			other.replica = true
		}
	}
	return other, nil
}

// otherRedis has the worker's account store a key of doctor's own for some seconds, which the
// account for the audit reads.
func (e *Exam) otherRedis(ctx context.Context) (*elsewhere, error) {
	name, text := keyspace.OwnPrefixes[0]+"doctor:"+rand.Text(), rand.Text()
	if err := e.Redis.Nodes.Client().Set(ctx, name, text, 10*time.Second).Err(); err != nil {
		return nil, fmt.Errorf("mark the workers' Redis: %w", err)
	}
	defer e.Redis.Nodes.Client().Unlink(ctx, name)
	got, err := readIn(ctx, e.AuditRedis, e.Redis.Nodes.DB(), name)
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("look for a mark in the audited Redis: %w", err)
	}
	other := &elsewhere{flag: "--audit-redis-url", than: "--redis-url"}
	if one, ok := e.AuditRedis.Client().(*redis.Client); ok {
		told, err := one.Info(ctx, "replication").Result()
		if err != nil {
			return nil, fmt.Errorf("ask for INFO replication: %w", err)
		}
		other.replica = strings.Contains(told, "role:slave")
	}
	if got == text && !other.replica {
		return nil, nil
	}
	// a server without the key in time counts as no replica
	other.replica = got == text
	return other, nil
}

// readIn reads a key of one of the databases.
func readIn(ctx context.Context, n *keyspace.Nodes, db int, name string) (text string, err error) {
	one, ok := n.Client().(*redis.Client)
	if !ok || n.DB() == db {
		return n.Client().Get(ctx, name).Result()
	}
	conn := one.Conn()
	defer func() { err = cmp.Or(err, conn.Select(ctx, n.DB()).Err(), conn.Close()) }()
	if err := conn.Select(ctx, db).Err(); err != nil {
		return "", err
	}
	return conn.Get(ctx, name).Result()
}
