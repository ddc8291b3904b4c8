package store

import (
	"context"
	"fmt"
)

// A Place says where an outbox is.
type Place struct {
	Server string // the ID of the server, or of its Galera cluster
	Schema string // the name of the database
}

// Contract for both: no lock, no table. A server without an ID (MariaDB before 10.11.9) is known by its host and port.
const (
	serverSQL  = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid', 'hostname', 'port')"
	clusterSQL = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'"
)

// Place returns where the outbox is.
func (s *Store) Place(ctx context.Context) (p Place, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	known := map[string]string{}
	for _, query := range []string{serverSQL, clusterSQL} {
		var list []struct {
			Name  string `db:"Variable_name"`
			Value string `db:"Value"`
		}
		if err := s.side.SelectContext(ctx, &list, query); err != nil {
			return p, fmt.Errorf("read the server's ID: %w", err)
		}
		for _, v := range list {
			known[v.Name] = v.Value
		}
	}
	if err := s.side.GetContext(ctx, &p.Schema, "SELECT DATABASE()"); err != nil {
		return p, fmt.Errorf("read the name of the database: %w", err)
	}
	for _, id := range []string{known["wsrep_cluster_state_uuid"], known["server_uuid"], known["server_uid"]} {
		if id != "" {
			p.Server = id
			return p, nil
		}
	}
	p.Server = known["hostname"] + ":" + known["port"]
	return p, nil
}

// Contract: no lock (a consistent read); one entry of the primary key.
const lastBatchSQL = "SELECT COALESCE(MAX(id), 0) FROM cache_outbox_journal"

// LastBatch returns the greatest ID in the journal, 0 if the journal is empty.
func (s *Store) LastBatch(ctx context.Context) (id uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.side.GetContext(ctx, &id, lastBatchSQL); err != nil {
		return 0, fmt.Errorf("read the last ID of the journal: %w", err)
	}
	return id, nil
}

// A ConflictKind says what is wrong with the databases that workers serve on one Redis.
type ConflictKind string

// The kinds of conflicts.
const (
	ConflictRestored ConflictKind = "restored" // the database is older than Redis
	ConflictID       ConflictKind = "id"       // two databases have one ID
	ConflictNames    ConflictKind = "names"    // two databases have the same names
)

// ConflictKinds lists all kinds.
var ConflictKinds = []ConflictKind{ConflictRestored, ConflictID, ConflictNames}

// A Conflict is a fault that concerns an outbox and what Redis holds of it or of another one. Workers
// find it: see package registry.
type Conflict struct {
	Kind ConflictKind
	Text string // one sentence, without an end
	Cure string // what to do
}
