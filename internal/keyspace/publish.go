package keyspace

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A publisher numbers the messages of one Keyspace on one channel.
type publisher struct {
	mu    sync.Mutex             // held while messages are numbered and sent: subscribers must hear them in order
	epoch string                 // empty before the first message
	shown atomic.Pointer[string] // epoch, readable without mu
	seq   uint64                 // of the last message of the epoch
	node  string                 // the address that the epoch is pinned to

	after    string // the epoch before it, if that was given up without goodbye
	afterSeq uint64 // the number of its last message
}

// Published says what a Publish did.
type Published struct {
	Messages int // that Redis has confirmed
	// Receivers is how many subscribers the message reached that reached the fewest. -1: not known, since nothing was
	// published, or in Cluster, where a node counts its own subscribers alone.
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

// Publish announces news on channel (PUBLISH, or SPUBLISH with Options.ShardedPubSub), keys first, in
// messages of at most protocol.MaxEntries entries, and returns what Redis has confirmed. Without anything
// to announce no message is sent. An error is an *Outage; the announcement is then to be made again.
//
// Messages of one Keyspace on one channel bear one random epoch and a sequence without gaps, and subscribers hear them
// in that order. Delivery is at least once: where an answer got lost, a message may be heard twice with the same number,
// or again with another number. A number is never used for different contents, so whoever misses one has missed
// something. In Cluster all messages go through the channel's master, or another one while that is away; when it becomes
// another node, a new epoch begins, since messages of two nodes may overtake each other. Its first message names the
// epoch before it. Calls may overlap, and Beat need not wait for the end of one.
func (k *Keyspace) Publish(ctx context.Context, channel string, f protocol.Format, news News) (done Published, err error) {
	done.Receivers = -1
	p := k.publisher(channel)
	for len(news.Keys)+len(news.Patterns) > 0 {
		var more News
		var run Run
		sent, err := k.say(ctx, p, channel, func() (texts [][]byte) {
			more = news
			run = Run{First: p.seq + 1}
			for size := 0; size < maxBytesPerPipeline && len(more.Keys)+len(more.Patterns) > 0; {
				m := more.next()
				if f != protocol.FormatArray {
					p.number(&m, k.mark.Load())
					run.Epoch, run.Last = m.Epoch, m.Seq
				}
				text := m.Append(nil, f)
				size += len(text)
				texts = append(texts, text)
			}
			return texts
		})
		for _, c := range sent {
			if n := int(c.Val()); k.cluster == nil && (done.Messages == 0 || n < done.Receivers) {
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

// publisher is the one of a channel.
func (k *Keyspace) publisher(channel string) *publisher {
	p, known := k.publishers.Load(channel)
	if !known {
		p, _ = k.publishers.LoadOrStore(channel, &publisher{})
	}
	return p.(*publisher)
}

// say sends messages in one pipeline, through another node in another epoch if the first one is away. next makes them,
// and is called for each attempt.
func (k *Keyspace) say(ctx context.Context, p *publisher, channel string, next func() [][]byte) (sent []*redis.IntCmd, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		node, err := k.publishNode(ctx, channel)
		if err != nil {
			return nil, err
		}
		p.pin(node.Options().Addr)
		before := p.seq
		texts := next()
		commands := make([]redis.Cmder, len(texts))
		sent := make([]*redis.IntCmd, len(texts))
		for i, text := range texts {
			sent[i] = redis.NewIntCmd(ctx, k.publishCommand(), channel, text)
			commands[i] = sent[i]
		}
		if err := k.exec(ctx, k.publishClient(node), commands); err != nil {
			if errors.Is(err, errNoTime) { // nobody has heard the numbers
				p.seq = before
			}
			return nil, err
		}
		switch again, err := k.heard(ctx, node, commands); {
		case err != nil:
			return nil, err
		case again: // in another epoch, since what this one has heard is not known
			continue
		}
		return sent, nil
	}
}

// heard checks the replies to messages that went through a node, and reports whether they are to be sent again through
// another one.
func (k *Keyspace) heard(ctx context.Context, node *redis.Client, commands []redis.Cmder) (again bool, err error) {
	for _, c := range commands {
		err := c.Err()
		if err == nil {
			k.receivers.Store(c.(*redis.IntCmd).Val())
			continue
		}
		o := k.shardOutage(ctx, err)
		if o == nil || k.sharded {
			return false, k.outage(ctx, err)
		}
		k.markAway(node.Options().Addr, o)
		if present, err := k.present(ctx); err != nil || len(present) == 0 || k.isAway(present[0].addr) {
			return false, o
		}
		return true, nil
	}
	return false, nil
}

// Receivers is how many subscribers the server counted at the last message or heartbeat, on whichever channel: in a
// Cluster those at the node that it went through alone. 0 before the first.
func (k *Keyspace) Receivers() int64 { return k.receivers.Load() }

func (k *Keyspace) publishCommand() string {
	if k.sharded {
		return "spublish"
	}
	return "publish"
}

// publishClient is the node's client, or where the node must be the one that has the channel's slot a client that
// follows the slot.
func (k *Keyspace) publishClient(node *redis.Client) redis.UniversalClient {
	if k.sharded {
		return k.client
	}
	return node
}

// publishNode is the node that messages go through: the channel's master, or another one while that is away.
// Subscribers hear them at every node.
func (k *Keyspace) publishNode(ctx context.Context, channel string) (*redis.Client, error) {
	away, err := k.awayFor(ctx, channel)
	switch {
	case err != nil:
		return nil, err
	case away == nil:
		return k.master(ctx, channel)
	case k.sharded:
		return nil, away
	}
	present, err := k.present(ctx)
	if err != nil {
		return nil, err
	}
	return k.master(ctx, present[0].tag)
}

// pin begins a new epoch where the node is not the one of the last message.
func (p *publisher) pin(node string) {
	if p.epoch != "" && p.node == node {
		return
	}
	if p.seq > 0 { // one that nobody has heard of needs no mention
		p.after, p.afterSeq = p.epoch, p.seq
	}
	epoch := rand.Text()
	p.epoch, p.seq, p.node = epoch, 0, node
	p.shown.Store(&epoch)
}

// Epoch returns the epoch of the messages on channel. It is empty before the first message and
// after the last.
func (k *Keyspace) Epoch(channel string) string {
	if p, known := k.publishers.Load(channel); known {
		if epoch := p.(*publisher).shown.Load(); epoch != nil {
			return *epoch
		}
	}
	return ""
}

// number makes m the next message of the epoch. The first one is marked, with what mark says of the publisher, if it
// sends heartbeats or another epoch goes before it.
func (p *publisher) number(m *protocol.Message, mark *protocol.Beat) {
	p.seq++
	m.Epoch, m.Seq = p.epoch, p.seq
	if p.seq > 1 || mark == nil && p.after == "" {
		return
	}
	if m.Beat == nil {
		m.Beat = &protocol.Beat{}
		if mark != nil {
			*m.Beat = *mark
		}
	}
	m.Beat.First, m.Beat.After, m.Beat.AfterSeq = true, p.after, p.afterSeq
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
