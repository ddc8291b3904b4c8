package status

import (
	"context"
	"strings"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// findOld finds out which old entries Redis still has.
func (l *Looker) findOld(ctx context.Context, lists ...[]store.OldEntry) error {
	var keys []string
	for _, list := range lists {
		for i := range list {
			keys = append(keys, list[i].Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	heads, err := l.redis.Contents.Heads(ctx, keys)
	if err != nil {
		return err
	}
	for _, list := range lists {
		for i := range list {
			e := &list[i]
			leased, _ := maintenance.EntryTimes(heads[i], strings.HasPrefix(e.Key, protocol.StampPrefix))
			e.State = store.Gone
			lease := uint64(e.Lease.UnixMicro())
			if heads[i] != "" && (leased == lease || lease == 0 || 0 < leased && leased < e.Before) {
				e.State = store.Present
			}
		}
		heads = heads[len(list):]
	}
	return nil
}
