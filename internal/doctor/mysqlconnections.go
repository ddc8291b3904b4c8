package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// mostConnections is the used share of the limit above which a worker may get no connection.
const mostConnections = 0.8

// Contract: no lock; counters of the server, which need no privilege.
const connectionsSQL = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Max_used_connections')"

func mysqlConnections(ctx context.Context, e *Exam) ([]Finding, error) {
	db := e.MySQL.DB()
	rows, err := queryRows(ctx, db, connectionsSQL)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for _, r := range rows {
		if figures[r["Variable_name"]], err = strconv.ParseFloat(r["Value"], 64); err != nil {
			return nil, fmt.Errorf("%s is %q", r["Variable_name"], r["Value"])
		}
	}
	if len(figures) < 2 {
		return nil, errors.New("the server does not tell how many connections it has")
	}
	most, err := e.MySQL.Variable(ctx, "@@GLOBAL.max_connections")
	if err != nil {
		return nil, err
	}
	limit, err := strconv.ParseFloat(most, 64)
	if err != nil {
		return nil, fmt.Errorf("max_connections is %q", most)
	}
	now, peak := figures["Threads_connected"], figures["Max_used_connections"]
	evidence := fmt.Sprintf("%.0f of %.0f connections are open, %.0f were at once since the server started", now, limit, peak)
	const cure = "raise max_connections, or have applications pool theirs; a worker takes ten at most"
	switch {
	case now >= mostConnections*limit:
		return []Finding{found(Critical, "hardly any connection is left", evidence, cure)}, nil
	case peak >= mostConnections*limit:
		return []Finding{found(Warning, "there were hardly any connections left", evidence, cure)}, nil
	}
	return []Finding{well("%s", evidence)}, nil
}
