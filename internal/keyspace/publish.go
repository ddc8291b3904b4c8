package keyspace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A Publisher sends messages to readers: invalidated keys and patterns, and heartbeats.
type Publisher struct {
	nodes  *Nodes
	shards *Shards

	sharded    bool                          // Pub/Sub
	receivers  atomic.Int64                  // of the last message
	channels   sync.Map                      // a *series for each channel
	mark       atomic.Pointer[protocol.Beat] // of first messages, nil unless heartbeats are sent
	alive      atomic.Bool                   // the latest Board.Alive succeeded; part of heartbeats
	messageKey protocol.MessageKey           // nil: messages are not signed
}

// Published is the result of a Publish.
type Published struct {
	Messages int // that Redis has confirmed
	// Receivers is how many subscribers the message reached that reached the fewest. -1: not known,
	// since nothing was published, or in Cluster, where a node counts its own subscribers alone.
	Receivers int
	// Runs are the numbers of the messages; none in the array format, which has no room for them.
	Runs []Run
}

// News are the keys and patterns that messages announce.
type News struct {
	Keys, Patterns []string
	// Unlinked is a time before the first of Keys was unlinked: see [Unlinked.Born]. 0: unknown.
	Unlinked uint64
}

// A Run is messages of one epoch without a gap, First and Last included.
type Run struct {
	Epoch       string
	First, Last uint64
}

// Publish announces news on channel (PUBLISH, or SPUBLISH with Options.ShardedPubSub), keys first,
// in messages of at most protocol.MaxEntries entries, and returns what Redis has confirmed. Without
// news it sends nothing. After an error, which is an *Outage, the caller must publish again.
//
// Messages of one Keyspace on one channel have one random epoch and consecutive numbers, and
// subscribers receive them in that order. Delivery is at least once: if an answer is lost, a
// message may arrive twice with the same number, or again with another number. A number is never
// used for different contents, so a missing number is a missed message. In a Cluster all messages
// go through the master of the channel, or another one while that is unavailable. When the node
// changes, a new epoch begins, since messages of two nodes may overtake each other. Its first
// message names the previous epoch. Calls may overlap, and Beat need not wait for the end of one.
func (p *Publisher) Publish(ctx context.Context, channel string, f protocol.Format, news News) (done Published, err error) {
	done.Receivers = -1
	s := p.series(channel)
	for len(news.Keys)+len(news.Patterns) > 0 {
		var more News
		var run Run
		sent, err := p.say(ctx, s, channel, func() (texts [][]byte) {
			more = news
			run = Run{First: s.seq + 1}
			for size := 0; size < maxBytesPerPipeline && len(more.Keys)+len(more.Patterns) > 0; {
				m := more.next()
				var text []byte
				if f == protocol.FormatArray {
					text = m.Append(nil, f)
				} else {
					s.number(&m, p.mark.Load())
					run.Epoch, run.Last = m.Epoch, m.Seq
					text = p.text(s, channel, m)
				}
				size += len(text)
				texts = append(texts, text)
			}
			return texts
		})
		for _, c := range sent {
			if n := int(c.Val()); p.nodes.cluster == nil && (done.Messages == 0 || n < done.Receivers) {
				done.Receivers = n
			}
			done.Messages++
		}
		if err != nil {
			return done, err
		}
		if run.Epoch != "" {
			done.Runs = append(done.Runs, run)
		}
		news = more
	}
	return done, nil
}

// series returns the series of a channel.
func (p *Publisher) series(channel string) *series {
	s, known := p.channels.Load(channel)
	if !known {
		s, _ = p.channels.LoadOrStore(channel, &series{})
	}
	return s.(*series)
}

// say sends messages in one pipeline. If the first node is unavailable, it uses another node and
// another epoch. It calls next for the messages of each attempt.
func (p *Publisher) say(ctx context.Context, s *series, channel string, next func() [][]byte) (sent []*redis.IntCmd, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		node, err := p.publishNode(ctx, channel)
		if err != nil {
			return nil, err
		}
		s.pin(node.Options().Addr)
		switch again, err := p.askTime(ctx, s, node); {
		case err != nil:
			return nil, err
		case again:
			continue
		}
		before := s.seq
		texts := next()
		commands := make([]redis.Cmder, len(texts))
		sent := make([]*redis.IntCmd, len(texts))
		for i, text := range texts {
			sent[i] = redis.NewIntCmd(ctx, p.publishCommand(), channel, text)
			commands[i] = sent[i]
		}
		if err := p.nodes.exec(ctx, p.publishClient(node), commands); err != nil {
			if errors.Is(err, errNoTime) { // no subscriber has received the numbers
				s.seq = before
			}
			return nil, err
		}
		switch again, err := p.heard(ctx, node, commands); {
		case err != nil:
			return nil, err
		case again: // in another epoch, since it is unknown which messages were received
			continue
		}
		return sent, nil
	}
}

// heard checks the replies of a node, and reports whether to send the messages again through
// another one.
func (p *Publisher) heard(ctx context.Context, node *redis.Client, commands []redis.Cmder) (again bool, err error) {
	for _, c := range commands {
		err := c.Err()
		if err == nil {
			if sent, ok := c.(*redis.IntCmd); ok {
				p.receivers.Store(sent.Val())
			}
			continue
		}
		o := p.shards.shardOutage(ctx, err)
		if o == nil || p.sharded {
			return false, p.nodes.outage(ctx, err)
		}
		p.shards.markAway(node.Options().Addr, o)
		if present, err := p.shards.present(ctx); err != nil || len(present) == 0 || p.shards.isAway(present[0].addr) {
			return false, o
		}
		return true, nil
	}
	return false, nil
}

// Receivers returns how many subscribers the server counted at the last message or heartbeat, on
// whichever channel: in a Cluster those at the node that it went through alone. 0 before the first.
func (p *Publisher) Receivers() int64 { return p.receivers.Load() }

func (p *Publisher) publishCommand() string {
	if p.sharded {
		return "spublish"
	}
	return "publish"
}

// publishClient returns the client of the node, or, if only the node of the channel's slot can
// publish, a client that follows the slot.
func (p *Publisher) publishClient(node *redis.Client) redis.UniversalClient {
	if p.sharded {
		return p.nodes.client
	}
	return node
}

// publishNode returns the node for messages: the master of the channel, or another one while that
// is unavailable. Subscribers receive them at every node.
func (p *Publisher) publishNode(ctx context.Context, channel string) (*redis.Client, error) {
	away, err := p.shards.awayFor(ctx, channel)
	switch {
	case err != nil:
		return nil, err
	case away == nil:
		return p.nodes.master(ctx, channel)
	case p.sharded:
		return nil, away
	}
	present, err := p.shards.present(ctx)
	if err != nil {
		return nil, err
	}
	return p.nodes.master(ctx, present[0].tag)
}

// Epoch returns the epoch of the messages on channel. It is empty before the first message and
// after the last.
func (p *Publisher) Epoch(channel string) string {
	if s, known := p.channels.Load(channel); known {
		if epoch := s.(*series).shown.Load(); epoch != nil {
			return *epoch
		}
	}
	return ""
}

// next removes the entries of the next message, and returns that message.
func (n *News) next() protocol.Message {
	keys := min(len(n.Keys), protocol.MaxEntries)
	patterns := min(len(n.Patterns), protocol.MaxEntries-keys)
	m := protocol.Message{At: time.Now().UTC(), Keys: n.Keys[:keys], Patterns: n.Patterns[:patterns]}
	if keys > 0 {
		m.Unlinked = n.Unlinked
	}
	n.Keys, n.Patterns = n.Keys[keys:], n.Patterns[patterns:]
	return m
}
