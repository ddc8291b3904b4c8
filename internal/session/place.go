package session

import (
	"context"
	"fmt"
)

// A Place is the location of an outbox.
type Place struct {
	Server string // the ID of the server, or of its Galera cluster
	Schema string // the name of the database
}

// Contract for both: no lock, no table. A server without an ID (MariaDB before 10.11.9) is
// identified by its host and port.
const (
	serverSQL  = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid', 'hostname', 'port')"
	clusterSQL = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'"
)

// Place returns the location of the outbox.
func (s *Sessions) Place(ctx context.Context) (p Place, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	known := map[string]string{}
	for _, query := range []string{serverSQL, clusterSQL} {
		var list []struct {
			Name  string `db:"Variable_name"`
			Value string `db:"Value"`
		}
		if err := s.Side.SelectContext(ctx, &list, query); err != nil {
			return p, fmt.Errorf("read the server's ID: %w", err)
		}
		for _, v := range list {
			known[v.Name] = v.Value
		}
	}
	if err := s.Side.GetContext(ctx, &p.Schema, "SELECT DATABASE()"); err != nil {
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
