package outboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oagudo/outbox"

	"github.com/unstale/unstale/lab/bench"
)

const (
	oagudoBatch    = 1000
	oagudoInterval = time.Millisecond
)

// oagudoTable is the table as the library's manual gives it for MySQL; MariaDB takes it as well.
var oagudoTable = []string{
	`CREATE TABLE outbox (
	id BINARY(16) PRIMARY KEY,
	created_at TIMESTAMP(3) NOT NULL,
	scheduled_at TIMESTAMP(3) NOT NULL,
	metadata BLOB,
	payload BLOB NOT NULL,
	times_attempted INT NOT NULL
)`,
	"CREATE INDEX idx_outbox_created_at ON outbox (created_at)",
	"CREATE INDEX idx_outbox_scheduled_at ON outbox (scheduled_at)",
}

// oagudoOutbox returns the outbox of oagudo.
//
// It has one reader: two would read the same rows and publish each twice, because it does not lock
// rows. It publishes one message at a time. Two settings can be tuned: how many messages it reads
// (a thousand every millisecond here), and how many of these it deletes at a time (20 by default).
func oagudoOutbox(name string, deletes int) bench.Peer {
	return bench.Peer{
		Name:  name,
		Table: "outbox",
		Fill:  oagudoFill,
		Drain: func(ctx context.Context, g *bench.Ground) (err error) {
			db, err := open(g, true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			reader := outbox.NewReader(outbox.NewDBContext(db, outbox.SQLDialectMySQL), oagudoPublisher{g},
				outbox.WithInterval(oagudoInterval), outbox.WithReadBatchSize(oagudoBatch), outbox.WithDeleteBatchSize(deletes))
			reader.Start()
			defer func() { err = errors.Join(err, reader.Stop(context.WithoutCancel(ctx))) }()
			select {
			case <-ctx.Done():
				return nil
			case err := <-reader.Errors():
				return err
			}
		},
	}
}

// oagudoPublisher is its broker.
type oagudoPublisher struct{ ground *bench.Ground }

func (p oagudoPublisher) Publish(ctx context.Context, m *outbox.Message) error {
	var id string
	if err := json.Unmarshal(m.Payload, &id); err != nil {
		return err
	}
	return p.ground.Invalidate(ctx, id)
}

// oagudoFill inserts what its writer inserts, many rows in one statement, a millisecond apart and
// all of them due.
func oagudoFill(ctx context.Context, g *bench.Ground, n int) (err error) {
	db, err := open(g, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var tables int
	const known = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'outbox'"
	if err := db.QueryRowContext(ctx, known).Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		for _, statement := range oagudoTable {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	first := time.Now().UTC().Add(-time.Duration(n) * time.Millisecond).Add(-time.Minute)
	return inParts(n, func(from, to int) error {
		var args []any
		for i := from; i < to; i++ {
			payload, err := json.Marshal(g.ID(i))
			if err != nil {
				return err
			}
			at := first.Add(time.Duration(i) * time.Millisecond)
			m := outbox.NewMessage(payload, outbox.WithCreatedAt(at), outbox.WithScheduledAt(at))
			args = append(args, m.ID[:], m.CreatedAt, m.ScheduledAt, m.Metadata, m.Payload, 0)
		}
		places := strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?),", to-from), ",")
		_, err := db.ExecContext(ctx, fmt.Sprintf(
			"INSERT INTO outbox (id, created_at, scheduled_at, metadata, payload, times_attempted) VALUES %s", places), args...)
		return err
	})
}
