package keyspace

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/invalidation"
)

// A publisher numbers the messages of one Keyspace.
type publisher struct {
	mu    sync.Mutex // held while messages are numbered and sent: subscribers must hear them in order
	epoch string     // empty before the first message
	seq   uint64     // of the last message of the epoch
	node  string     // the address that the epoch is pinned to
}

// Publish announces keys and patterns on channel, keys first, in messages of
// at most invalidation.MaxEntries entries, and returns how many messages Redis
// has confirmed. Nothing to announce is no message. An error is an *Outage;
// the announcement is then to be made again.
//
// Messages of one Keyspace bear one random epoch and a sequence without gaps,
// and subscribers hear them in that order. Delivery is at least once: where
// an answer got lost, a message may be heard twice with the same number, or
// again with another number. A number is never used for different contents, so
// whoever misses one has missed something. In Cluster all messages go through
// the channel's master; when that becomes another node, a new epoch begins,
// since messages of two nodes may overtake each other.
func (k *Keyspace) Publish(ctx context.Context, channel string, f invalidation.Format, keys, patterns []string) (messages int, err error) {
	if len(keys)+len(patterns) == 0 {
		return 0, nil
	}
	node, err := k.master(ctx, channel)
	if err != nil {
		return 0, err
	}
	p := &k.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pin(node.Options().Addr)
	for len(keys)+len(patterns) > 0 {
		var commands []redis.Cmder
		for size := 0; size < roundBytes && len(keys)+len(patterns) > 0; {
			var m invalidation.Message
			m, keys, patterns = p.next(keys, patterns)
			text := m.Append(nil, f)
			size += len(text)
			commands = append(commands, redis.NewIntCmd(ctx, "publish", channel, text))
		}
		if err := k.exec(ctx, node, commands); err != nil {
			return messages, err
		}
		for _, c := range commands {
			if c.Err() != nil {
				return messages, k.outage(ctx, c.Err())
			}
			messages++
		}
	}
	return messages, nil
}

// pin begins a new epoch where the node is not the one of the last message.
func (p *publisher) pin(node string) {
	if p.epoch == "" || p.node != node {
		p.epoch, p.seq, p.node = rand.Text(), 0, node
	}
}

// next is the next message, and what is left for those after it.
func (p *publisher) next(keys, patterns []string) (m invalidation.Message, moreKeys, morePatterns []string) {
	n := min(len(keys), invalidation.MaxEntries)
	o := min(len(patterns), invalidation.MaxEntries-n)
	p.seq++
	return invalidation.Message{
		Epoch: p.epoch, Seq: p.seq, At: time.Now().UTC(),
		Keys: keys[:n], Patterns: patterns[:o],
	}, keys[n:], patterns[o:]
}
