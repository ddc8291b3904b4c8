package keyspace

import (
	"cmp"
	"context"
	"time"

	"github.com/unstale/unstale/protocol"
)

// Introduce announces that heartbeats will be sent. From now on the first message of each epoch is
// marked as a heartbeat in addition to its content: subscribers then expect the next ones. source
// is the ID of the outbox, lease the longest lease that a reader may hold. Call it again when the
// lease changes.
func (p *Publisher) Introduce(source string, lease time.Duration) {
	p.mark.Store(&protocol.Beat{Source: source, Lease: lease.Milliseconds()})
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
			texts = append(texts, p.text(s, channel, first))
		}
		beat := *mark
		beat.Moved, beat.Withheld, beat.First = moved, withheld, withheld != ""
		beat.Behind = max(time.Since(asOf).Milliseconds(), 1)
		beat.Alive = p.alive.Load()
		m := protocol.Message{At: time.Now().UTC(), Beat: &beat}
		s.number(&m, mark)
		return append(texts, p.text(s, channel, m))
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
		beat := protocol.Beat{Last: true}
		if mark := p.mark.Load(); mark != nil {
			beat.Source, beat.Lease = mark.Source, mark.Lease
		}
		m := protocol.Message{At: time.Now().UTC(), Beat: &beat}
		s.number(&m, nil)
		defer s.end()
		return [][]byte{p.text(s, channel, m)}
	})
	return err
}
