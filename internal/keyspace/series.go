package keyspace

import (
	"crypto/rand"
	"sync"
	"sync/atomic"

	"github.com/unstale/unstale/protocol"
)

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
		m.Beat = &protocol.Beat{}
		if mark != nil {
			*m.Beat = *mark
		}
	}
	m.Beat.First, m.Beat.After, m.Beat.AfterSeq = true, s.after, s.afterSeq
}

// end resets the epoch.
func (s *series) end() {
	s.epoch, s.seq, s.node, s.after, s.afterSeq = "", 0, "", "", 0
	s.shown.Store(nil)
}
