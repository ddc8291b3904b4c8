package keyspace

import (
	"cmp"
	"context"
	"crypto/rand"
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
	alive      atomic.Bool                   // the latest StatusHashes.Alive succeeded; part of heartbeats
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
					text = p.encode(s, channel, m)
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
	command := "publish"
	if p.sharded {
		command = "spublish"
	}
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
			sent[i] = redis.NewIntCmd(ctx, command, channel, text)
			commands[i] = sent[i]
		}
		on := redis.UniversalClient(node)
		if p.sharded { // only the node of the channel's slot can publish: follow the slot
			on = p.nodes.client
		}
		if err := p.nodes.exec(ctx, on, commands); err != nil {
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

// A series numbers the messages of one Publisher on one channel.
type series struct {
	// held while messages are numbered and sent: subscribers must receive them in that order
	mu    sync.Mutex
	epoch string                 // empty before the first message
	shown atomic.Pointer[string] // epoch, readable without mu
	seq   uint64                 // of the last message of the epoch
	node  string                 // the address that the epoch is pinned to

	after    string // the previous epoch, if it was abandoned without a final message
	afterSeq uint64 // the number of its last message

	told redisTime // of signed messages
}

// pin begins a new epoch if the node differs from the node of the last message.
func (s *series) pin(node string) {
	if s.epoch != "" && s.node == node {
		return
	}
	if s.seq > 0 { // an epoch without messages needs no mention
		s.after, s.afterSeq = s.epoch, s.seq
	}
	epoch := rand.Text()
	s.epoch, s.seq, s.node, s.told = epoch, 0, node, redisTime{}
	s.shown.Store(&epoch)
}

// number makes m the next message of the epoch. It adds mark to the first one if the publisher
// sends heartbeats or another epoch came before.
func (s *series) number(m *protocol.Message, mark *protocol.Beat) {
	s.seq++
	m.Epoch, m.Seq = s.epoch, s.seq
	if s.seq > 1 || mark == nil && s.after == "" {
		return
	}
	if m.Beat == nil {
		m.Beat = new(*cmp.Or(mark, &protocol.Beat{}))
	}
	m.Beat.First, m.Beat.After, m.Beat.AfterSeq = true, s.after, s.afterSeq
}

// resetEpoch resets the epoch.
func (s *series) resetEpoch() {
	s.epoch, s.seq, s.node, s.after, s.afterSeq = "", 0, "", "", 0
	s.shown.Store(nil)
}

// redisTimeLife is how long an answer to TIME is used. Heartbeats renew it, so batches rarely ask.
const redisTimeLife = time.Second

// A redisTime is an answer to TIME. The zero value is the machine's own clock.
type redisTime struct {
	time time.Time
	at   time.Time // when it came, by the machine's monotonic clock
}

func (r redisTime) now() time.Time {
	if r.time.IsZero() {
		return time.Now()
	}
	return r.time.Add(time.Since(r.at))
}

// askTime asks a node for its time if messages are signed and the last answer is too old. It
// returns the result of heard. An account without +time signs with the clock of the machine.
func (p *Publisher) askTime(ctx context.Context, s *series, node *redis.Client) (again bool, err error) {
	if p.messageKey == nil || time.Since(s.told.at) < redisTimeLife || !p.nodes.clock.mayAsk() {
		return false, nil
	}
	c := redis.NewTimeCmd(ctx, "time")
	if err := p.nodes.exec(ctx, node, []redis.Cmder{c}); err != nil {
		return false, err
	}
	if firstWord(c.Err()) == "NOPERM" {
		p.nodes.clock.deny()
		s.told = redisTime{}
		return false, nil
	}
	s.told = redisTime{c.Val(), time.Now()}
	return p.heard(ctx, node, []redis.Cmder{c})
}

// encode returns a message in the event format, signed if there is a key.
func (p *Publisher) encode(s *series, channel string, m protocol.Message) []byte {
	if p.messageKey == nil {
		return m.Append(nil, protocol.FormatEvent)
	}
	m.Sent = uint64(s.told.now().UnixMicro())
	return m.AppendSigned(nil, channel, p.messageKey)
}

// Introduce announces that heartbeats will be sent. From now on the first message of each epoch is
// marked as a heartbeat in addition to its content: subscribers then expect the next ones. The
// lease is the longest lease that a reader may hold. Call it again when the lease changes.
func (p *Publisher) Introduce(outboxID string, lease time.Duration) {
	p.mark.Store(&protocol.Beat{Source: outboxID, Lease: lease.Milliseconds()})
}

// Beat sends a heartbeat on channel, in the event format. If it would be the first message of its
// epoch, which proves nothing, that message is sent first. moved is the channel of the publisher's
// map, or "". Everything committed by asOf is known to be invalidated. Beat waits for at most one
// pipeline of another message on the channel. Call Introduce first. The error is an *Outage.
//
// If withheld is a reason, the message is not a heartbeat, but reports why there is none. It is
// marked as the first of an epoch, so older readers do not count it.
func (p *Publisher) Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error {
	s := p.series(channel)
	_, err := p.say(ctx, s, channel, func() (texts [][]byte) {
		mark := cmp.Or(p.mark.Load(), &protocol.Beat{})
		if s.seq == 0 {
			first := protocol.Message{At: time.Now().UTC()}
			s.number(&first, mark)
			texts = append(texts, p.encode(s, channel, first))
		}
		beat := *mark
		beat.Moved, beat.Withheld, beat.First = moved, withheld, withheld != ""
		beat.Behind = max(time.Since(asOf).Milliseconds(), 1)
		beat.Alive = p.alive.Load()
		m := protocol.Message{At: time.Now().UTC(), Beat: &beat}
		s.number(&m, mark)
		return append(texts, p.encode(s, channel, m))
	})
	return err
}

// Goodbye ends the epoch on channel, if there is one, with a final message. From its number
// subscribers learn whether they have received all messages. Later messages begin another epoch.
// The error is an *Outage.
func (p *Publisher) Goodbye(ctx context.Context, channel string) error {
	s := p.series(channel)
	s.mu.Lock()
	spoken := s.seq > 0
	s.mu.Unlock()
	if !spoken {
		return nil
	}
	_, err := p.say(ctx, s, channel, func() [][]byte {
		mark := cmp.Or(p.mark.Load(), &protocol.Beat{})
		m := protocol.Message{At: time.Now().UTC(), Beat: &protocol.Beat{Last: true, Source: mark.Source, Lease: mark.Lease}}
		s.number(&m, nil)
		defer s.resetEpoch()
		return [][]byte{p.encode(s, channel, m)}
	})
	return err
}
