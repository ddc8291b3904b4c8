package keyspace

import "time"

// What tests outside of the package need to see.
var (
	StateOf     = stateOf
	PrivateName = privateName
)

// JudgeBeacon is what Survived makes of the texts of a beacon's two keys.
func JudgeBeacon(a, b string) uint64 { return survived(parseValue(a), parseValue(b)) }

// WatchEveryPage makes Sweep call watch for every page of a scan.
func (k *Keyspace) WatchEveryPage() { k.watchEvery = 0 }

// BeImpatient makes Sweep give up at once where it would wait for a failover.
func (k *Keyspace) BeImpatient() { k.patience = 0 }

// IsSending reports whether messages on the channel are being numbered and sent.
func (k *Keyspace) IsSending(channel string) bool {
	mu := &k.publisher(channel).mu
	if !mu.TryLock() {
		return true
	}
	mu.Unlock()
	return false
}

// A Pace is the pace of a sweep without its timer.
type Pace struct{ p *pace }

func NewPace(share float64) Pace          { return Pace{newPace(share)} }
func (p Pace) Count() int64               { return p.p.count() }
func (p Pace) Scanned(took time.Duration) { p.p.scanned(took) }
func (p Pace) Owed() time.Duration        { return p.p.due() }
func (p Pace) Rested(took time.Duration)  { p.p.rested(took) }

// ReadLayout reads what CLUSTER NODES says of the node at address: who has each slot, and from where to where slots are
// moving.
func ReadLayout(nodes, address string) (masters map[string]string, slots map[string]int, moves [][2]string, err error) {
	l := &layout{masters: map[string]string{}}
	err = l.add(nodes, address)
	slots = map[string]int{}
	for _, id := range l.owners {
		if id != "" {
			slots[id]++
		}
	}
	for _, m := range l.moves {
		moves = append(moves, [2]string{m.from, m.to})
	}
	return l.masters, slots, moves, err
}
