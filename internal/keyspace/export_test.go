package keyspace

import (
	"context"
	"slices"
	"time"
)

// Internals for tests in other packages.
var (
	StateOf     = stateOf
	PrivateName = privateName
)

// JudgeBeacon returns what Survived makes of the texts of a beacon's two keys.
func JudgeBeacon(a, b string) uint64 { return survived(parseValue(a), parseValue(b)) }

// WatchEveryPage lets Sweep call watch for every page of a scan.
func (s *Sweeper) WatchEveryPage() { s.watchEvery = 0 }

// BeImpatient lets Sweep give up immediately instead of waiting for a failover.
func (s *Sweeper) BeImpatient() { s.patience = 0 }

// IsSending reports whether messages on the channel are being numbered and sent.
func (p *Publisher) IsSending(channel string) bool {
	mu := &p.series(channel).mu
	if !mu.TryLock() {
		return true
	}
	mu.Unlock()
	return false
}

// A Pace is the pace of a sweep without its timer.
type Pace struct{ p *pace }

func NewPace(share float64) Pace          { return Pace{newPace(share)} }
func (p Pace) Count() int64               { return p.p.bucketsDue() }
func (p Pace) Scanned(took time.Duration) { p.p.scanned(took) }
func (p Pace) Owed() time.Duration        { return p.p.restDue() }
func (p Pace) Rested(took time.Duration)  { p.p.rested(took) }

// ReadLayout parses the CLUSTER NODES reply of the node at address. It returns the addresses of the
// masters, and numbers of slots: that each may have, that it has by another's reply, and that leave.
func ReadLayout(nodes, address string) (masters map[string]string, homes, told, leaving map[string]int, err error) {
	l := &layout{masters: map[string]string{}}
	err = l.parseNodes(nodes, address)
	homes, told, leaving = map[string]int{}, map[string]int{}, map[string]int{}
	for slot, ids := range l.homes {
		for _, id := range ids {
			homes[id]++
		}
		if id := l.told[slot]; id != "" {
			told[id]++
		}
		if id := l.leaving[slot]; id != "" {
			leaving[id]++
		}
	}
	return l.masters, homes, told, leaving, err
}

// Moved lists the tags that count as new because slots have moved, as Shards records them now.
func (s *Shards) Moved(ctx context.Context) (tags []string, err error) {
	list, err := s.listShards(ctx)
	for _, one := range list {
		if s.hasMoved(one.tag) {
			tags = append(tags, one.tag)
		}
	}
	return tags, err
}

// FollowMoves returns the tags that count as moved when one list of masters follows another, each
// as pairs of a tag and an address. before are the tags that counted already.
func FollowMoves(complete bool, before []string, old, list [][2]string) (tags []string) {
	shardsOf := func(pairs [][2]string) (list []shard) {
		for _, p := range pairs {
			list = append(list, shard{p[0], p[1]})
		}
		return list
	}
	s := &Shards{complete: complete, list: shardsOf(old), moved: map[string]time.Time{}}
	for _, tag := range before {
		s.moved[tag] = time.Now()
	}
	s.followMoves(shardsOf(list), time.Now())
	for tag := range s.moved {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	return tags
}
