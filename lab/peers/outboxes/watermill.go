package outboxes

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/unstale/unstale/lab/bench"
)

const watermillTopic = "invalidations"

// watermillQueue returns watermill-sql as a queue that deletes acknowledged rows.
//
// It has one subscriber: a second one would wait for the rows of the first, because the claim is
// FOR UPDATE without SKIP LOCKED (four are not faster). It delivers one message at a time and waits
// for its ack. The setting that can be tuned is batch, the rows that a transaction claims and
// deletes (100 by default).
func watermillQueue(name string, batch int) bench.Peer {
	schema := watermillsql.MySQLQueueSchema{SubscribeBatchSize: batch}
	offsets := watermillsql.MySQLQueueOffsetsAdapter{DeleteOnAck: true}
	return bench.Peer{
		Name:  name,
		Table: schema.MessagesTable(watermillTopic),
		Fill: func(ctx context.Context, g *bench.Ground, n int) (err error) {
			db, err := open(g, false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			config := watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}
			publisher, err := watermillsql.NewPublisher(watermillsql.BeginnerFromStdSQL(db), config, watermill.NopLogger{})
			if err != nil {
				return err
			}
			return inParts(n, func(from, to int) error {
				var messages []*message.Message
				for i := from; i < to; i++ {
					m, err := watermillMessage(g.ID(i))
					if err != nil {
						return err
					}
					messages = append(messages, m)
				}
				return publisher.Publish(watermillTopic, messages...)
			})
		},
		Drain: func(ctx context.Context, g *bench.Ground) (err error) {
			db, err := open(g, true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			failed := make(watermillFailure, 1)
			subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromStdSQL(db), watermillsql.SubscriberConfig{
				SchemaAdapter: schema, OffsetsAdapter: offsets, BackoffManager: failed,
			}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, subscriber.Close()) }()
			messages, err := subscriber.Subscribe(ctx, watermillTopic)
			if err != nil {
				return err
			}
			for {
				select {
				case <-ctx.Done():
					return nil
				case err := <-failed:
					return err
				case m, ok := <-messages:
					if !ok { // ctx has ended
						return nil
					}
					if err := watermillHandle(ctx, g, m); err != nil {
						return err
					}
				}
			}
		},
	}
}

func watermillHandle(ctx context.Context, g *bench.Ground, m *message.Message) error {
	var id string
	if err := json.Unmarshal(m.Payload, &id); err != nil {
		return err
	}
	if err := g.Invalidate(ctx, id); err != nil {
		return err
	}
	m.Ack()
	return nil
}

// A watermillFailure receives the first error of a subscriber, which would otherwise retry
// indefinitely. It also sets the wait after a query: a millisecond if there was no message.
type watermillFailure chan error

func (f watermillFailure) HandleError(_ watermill.LoggerAdapter, noMsg bool, err error) time.Duration {
	if err != nil {
		select {
		case f <- err:
		default:
		}
	}
	if noMsg || err != nil {
		return time.Millisecond
	}
	return 0
}

// watermillMessage returns a message with an ID as its payload, which is JSON by default.
func watermillMessage(id string) (*message.Message, error) {
	payload, err := json.Marshal(id)
	return message.NewMessage(watermill.NewUUID(), payload), err
}
