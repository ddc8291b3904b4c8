package keyspace

import "context"

// Listen calls heard for each message on channel until ctx ends. It reconnects
// by itself; messages that are published meanwhile, or faster than heard
// returns, are lost, so it fits hints only.
//
// It returns as soon as ctx ends, also while a server does not answer: the
// client library does not give up a command for a context that is cancelled, so
// what it has under way ends behind the caller's back, by Options.Timeout.
func (k *Keyspace) Listen(ctx context.Context, channel string, heard func()) {
	messages := make(chan struct{})
	go k.listen(ctx, channel, messages)
	for {
		select {
		case <-ctx.Done():
			return
		case <-messages:
			heard()
		}
	}
}

func (k *Keyspace) listen(ctx context.Context, channel string, heard chan<- struct{}) {
	sub := k.client.Subscribe(ctx, channel)
	defer sub.Close()
	for messages := sub.Channel(); ; {
		select {
		case <-ctx.Done():
			return
		case _, open := <-messages:
			if !open {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case heard <- struct{}{}:
		}
	}
}
