package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locking"
)

// Backend is the lock.Backend of one ensemble. Each Locker has its own ZooKeeper session, opened at
// its first acquisition. The session lasts for 1.5 x TTL after the last message of its process: a
// server that has lost contact to the others still answers, so the holder must give up earlier than
// they do. Processes get a lock in order of arrival.
type Backend struct {
	// Servers are the addresses of the ensemble, such as zk1.internal:2181. The port may be left
	// out. A name is resolved at each connection. Required.
	Servers []string

	// Root is the path below which each lock has a node. It is created if it does not exist.
	// Zero: "/unstale/locks".
	Root string

	// User and Password log in with the scheme digest. Then only this account can access the nodes
	// that the Locker creates. Zero: every client can.
	User, Password string

	// Dial connects to a server, for example DialContext of a tls.Dialer. Nil: DialContext of a
	// net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const defaultRoot = "/unstale/locks"

// WithDefaults returns a copy with every zero replaced that has a default.
func (b Backend) WithDefaults() Backend {
	b.Root = cmp.Or(b.Root, defaultRoot)
	if b.Dial == nil {
		b.Dial = new(net.Dialer).DialContext
	}
	return b
}

// Validate returns an error for each field at fault, joined. Apply WithDefaults first.
func (b Backend) Validate() error {
	var errs []error
	if len(b.Servers) == 0 {
		errs = append(errs, errors.New(`zk.Backend.Servers is empty: name the servers, such as "zk1.internal:2181"`))
	}
	for _, addr := range b.Servers {
		if addr == "" || strings.ContainsAny(addr, ", /") {
			errs = append(errs, fmt.Errorf("zk.Backend.Servers has %q: each is one host:port", addr))
		}
	}
	path, absolute := strings.CutPrefix(b.Root, "/")
	for _, part := range strings.Split(path, "/") {
		if !absolute || part == "" || part != nodeName(part) {
			errs = append(errs, fmt.Errorf("zk.Backend.Root is %q: it must be a path such as %s, of letters, digits and -_.:@", b.Root, defaultRoot))
			break
		}
	}
	if strings.Contains(b.User, ":") || b.User == "" && b.Password != "" {
		errs = append(errs, fmt.Errorf("zk.Backend.User is %q: it must not have a colon, nor be empty with a Password", b.User))
	}
	return errors.Join(errs...)
}

// Opener implements lock.Backend.
func (b Backend) Opener() lock.Opener { return locking.NewOpener(b.open, timeout) }

// timeout leaves time to notice a server that is frozen and to ask another, before the holder has
// to give up.
func timeout(ttl time.Duration) time.Duration { return ttl / 4 }

func (b Backend) open(o locking.Opening) (locking.Service, error) {
	b = b.WithDefaults()
	if err := b.Validate(); err != nil {
		return nil, err
	}
	s := &service{backend: b, config: o.Config, acl: zk.WorldACL(zk.PermAll), places: map[locking.Token]*place{}}
	if b.User != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	return s, nil
}
