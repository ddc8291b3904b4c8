package keyspace

import "context"

// Listen calls heard for each message on channel until ctx ends. It reconnects
// by itself; messages that are published meanwhile, or faster than heard
// returns, are lost, so it fits hints only.
func (k *Keyspace) Listen(ctx context.Context, channel string, heard func()) {
	sub := k.client.Subscribe(ctx, channel)
	defer sub.Close()
	messages := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-messages:
			if !open {
				return
			}
			heard()
		}
	}
}
