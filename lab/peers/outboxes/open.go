package outboxes

import (
	"database/sql"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/lab/bench"
)

// open opens the database of a ground for a peer. With interpolated parameters the driver is
// faster, because it prepares no statement; binary text does not get into a JSON column then.
// Sessions are in UTC, which the outbox of oagudo takes for granted.
func open(g *bench.Ground, interpolate bool) (*sql.DB, error) {
	config, err := mysql.ParseDSN(g.DSN)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = interpolate
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["time_zone"] = "'+00:00'"
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// inParts calls do for ranges of 0 to n, each as large as one statement takes.
func inParts(n int, do func(from, to int) error) error {
	const part = 2000
	for from := 0; from < n; from += part {
		if err := do(from, min(from+part, n)); err != nil {
			return err
		}
	}
	return nil
}
