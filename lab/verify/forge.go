package verify

import (
	"context"
	"sync"
	"time"

	"github.com/unstale/unstale/protocol"
)

// channel is where the workers publish: the map's default.
const channel = protocol.DefaultChannel

// A forger receives the heartbeats of workers, and can continue them.
type forger struct {
	stage *stage
	end   context.CancelFunc
	group sync.WaitGroup

	mu     sync.Mutex
	epochs map[string]protocol.Message // the latest message of each
	going  bool
}

// newForger subscribes.
func newForger(s *stage) *forger {
	f := &forger{stage: s, epochs: map[string]protocol.Message{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.end = cancel
	sub := s.client.Subscribe(ctx, channel)
	f.group.Go(func() {
		for ctx.Err() == nil {
			if m, err := sub.ReceiveMessage(ctx); err == nil {
				f.hear(m.Payload)
			}
		}
	})
	f.group.Go(func() {
		defer sub.Close()
		for ctx.Err() == nil {
			f.send(ctx)
			sleep(ctx, 900*time.Millisecond)
		}
	})
	return f
}

func (f *forger) close() {
	f.end()
	f.group.Wait()
}

// goOn starts sending.
func (f *forger) goOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.going = true
}

func (f *forger) hear(text string) {
	m, err := protocol.DecodeMessage([]byte(text))
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.epochs[m.Epoch]; err != nil || ok && known.Seq >= m.Seq {
		return
	} else if m.Beat == nil {
		m.Beat = known.Beat
	}
	f.epochs[m.Epoch] = m
}

// send sends the next heartbeat of each epoch that has sent one, once goOn was called.
func (f *forger) send(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.going {
		return
	}
	for epoch, m := range f.epochs {
		if m.Beat == nil {
			continue
		}
		m.Seq++
		m.At, m.Keys, m.Patterns = time.Now(), nil, nil
		m.Beat = &protocol.Beat{Source: m.Beat.Source, Lease: m.Beat.Lease}
		f.epochs[epoch] = m
		// only a plant
		_ = f.stage.client.Publish(ctx, channel, m.Append(nil, protocol.FormatEvent)).Err()
	}
}
