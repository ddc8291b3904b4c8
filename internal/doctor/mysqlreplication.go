package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// mostLag limits the lag of a replica, in seconds: a reader that loads from the replica stores data
// of that age.
const mostLag = 10

// Contract for all: no lock; the state of the replica's threads, of each of its sources. The first
// is MariaDB's, the last that of MySQL before 8.0.22.
var replicaSQL = []string{"SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"}

// sourcesOf returns the sources of a replica, or none if the server is not a replica.
func sourcesOf(ctx context.Context, db *sql.DB) (rows []row, err error) {
	for _, query := range replicaSQL {
		if rows, err = queryRows(ctx, db, query); mysqlerr.Number(err) != mysqlerr.Syntax {
			break
		}
	}
	return rows, err
}

// mysqlReplication may examine a server other than the worker's: one of its replicas.
func mysqlReplication(ctx context.Context, e *Exam) ([]Finding, error) {
	if cure, reason := e.unreached(auditMySQL); reason != nil {
		return []Finding{unseen("how far a replica of MySQL is behind", reason, cure)}, nil
	}
	rows, err := sourcesOf(ctx, e.AuditMySQL.DB())
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return []Finding{found(Info, "the audited MySQL is not a replica, so replicas were not checked", "a source does not know how far its replicas are behind",
			"if readers load from replicas, name one of them in --audit-mysql-dsn")}, nil
	}
	var all []Finding
	for _, r := range rows {
		all = append(all, replicaFinding(r))
	}
	return all, nil
}

// replicaFinding returns the finding of one source of a replica, which may have several.
func replicaFinding(r row) Finding {
	from := cmp.Or(r.first("Channel_Name", "Connection_name"), r.first("Source_Host", "Master_Host"))
	behind := r.first("Seconds_Behind_Source", "Seconds_Behind_Master")
	running := r.first("Replica_SQL_Running", "Slave_SQL_Running") == "Yes" && r.first("Replica_IO_Running", "Slave_IO_Running") == "Yes"
	if n, err := strconv.Atoi(behind); running && err == nil && n <= mostLag {
		return well("the audited MySQL is a replica of %s, %d s behind", from, n)
	}
	if behind == "" {
		behind = "an unknown number of"
	}
	evidence := fmt.Sprintf("%s seconds behind %s; reading %s, applying %s; %s %s", behind, from, r.first("Replica_IO_Running", "Slave_IO_Running"),
		r.first("Replica_SQL_Running", "Slave_SQL_Running"), r["Last_IO_Error"], r["Last_SQL_Error"])
	return found(Warning, "the replica is behind, so readers that load from it store old values", evidence,
		"bring it up to date, or have loaders read from the primary")
}
