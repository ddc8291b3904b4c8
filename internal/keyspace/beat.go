package keyspace

import (
	"context"
	"time"

	"github.com/unstale/unstale/protocol"
)

// Introduce says that heartbeats will be sent: from now on the first message of each epoch is marked as one, whatever
// else is in it, so that subscribers await the next ones. source is the id of the outbox, lease the longest lease that a
// reader may hold. Call it again where the lease changes.
func (k *Keyspace) Introduce(source string, lease time.Duration) {
	k.mark.Store(&protocol.Beat{Source: source, Lease: lease.Milliseconds()})
}

// Beat sends a heartbeat on channel, in the event format. If it would be the first message of its
// epoch, which proves nothing, that goes before it. moved is the channel that the publisher has moved
// to, "" for none. All that was committed by asOf is known to be invalidated. Beat waits for what is
// being sent on the channel, which is one pipeline. Call Introduce first. The error is an *Outage.
func (k *Keyspace) Beat(ctx context.Context, channel, moved string, asOf time.Time) error {
	p := k.publisher(channel)
	_, err := k.say(ctx, p, channel, func() (texts [][]byte) {
		mark := k.mark.Load()
		if p.seq == 0 {
			first := protocol.Message{At: time.Now().UTC()}
			p.number(&first, mark)
			texts = append(texts, first.Append(nil, protocol.FormatEvent))
		}
		beat := *mark
		beat.Moved = moved
		beat.Behind = max(time.Since(asOf).Milliseconds(), 1)
		beat.Alive = k.alive.Load()
		m := protocol.Message{At: time.Now().UTC(), Beat: &beat}
		p.number(&m, mark)
		return append(texts, m.Append(nil, protocol.FormatEvent))
	})
	return err
}

// Goodbye ends the epoch on channel, if there is one: its last message says so, by whose number subscribers know whether
// they have heard all of it, and that no more is to come. What is published later begins another epoch. The error is an
// *Outage.
func (k *Keyspace) Goodbye(ctx context.Context, channel string) error {
	p := k.publisher(channel)
	p.mu.Lock()
	spoken := p.seq > 0
	p.mu.Unlock()
	if !spoken {
		return nil
	}
	_, err := k.say(ctx, p, channel, func() [][]byte {
		beat := protocol.Beat{Last: true}
		if mark := k.mark.Load(); mark != nil {
			beat.Source, beat.Lease = mark.Source, mark.Lease
		}
		m := protocol.Message{At: time.Now().UTC(), Beat: &beat}
		p.number(&m, nil)
		defer p.end()
		return [][]byte{m.Append(nil, protocol.FormatEvent)}
	})
	return err
}

// end forgets the epoch.
func (p *publisher) end() {
	p.epoch, p.seq, p.node, p.after, p.afterSeq = "", 0, "", "", 0
	p.shown.Store(nil)
}
