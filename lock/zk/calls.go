package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/lock/internal/locking"
)

// beside runs f, whose library calls take no context, and returns when f or ctx ends. If f ends
// later, late gets its result, unless late is nil.
func beside[T any](ctx context.Context, s *session, f func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done, gone := make(chan result), make(chan struct{})
	started := s.service.start(func() {
		value, err := f()
		select {
		case done <- result{value, err}:
		case <-gone:
			if err == nil && late != nil {
				late(value)
			}
		}
	})
	if !started {
		return *new(T), locking.ErrClosed
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		close(gone)
		return *new(T), s.unanswered(ctx)
	}
}

// send makes one call of the library. If nothing arrives for the session's patience, the connection
// ends, and with it the call. The deadline of the caller does not matter, since an abandoned request is still the
// first one that the server must answer.
func send[T any](s *session, call func() (T, error)) (T, error) {
	defer s.watchdog()()
	value, err := call()
	if err == nil || isAnswer(err) {
		s.silent.Store(false)
	}
	return value, err
}

// retry repeats a call that may be sent twice, until a server answers or ctx or the session ends.
func retry[T any](ctx context.Context, s *session, call func() (T, error)) (value T, err error) {
	for {
		if err := s.connected(ctx); err != nil {
			return value, err
		}
		if value, err = send(s, call); err == nil || isAnswer(err) {
			return value, err
		}
		if err := s.pause(ctx); err != nil {
			return value, err
		}
	}
}

// query makes a call that may be sent twice, and returns when ctx ends.
func query[T any](ctx context.Context, s *session, call func() (T, error)) (T, error) {
	return beside(ctx, s, func() (T, error) { return retry(ctx, s, call) }, nil)
}

// isAnswer reports whether a server has said no. After any other error a request may have been
// carried out.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrBadArguments,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidPath, zk.ErrAPIError, zk.ErrUnknown},
		func(answer error) bool { return errors.Is(err, answer) })
}

// create creates the node of a claim, in the directory of its lock, which it also creates. After a
// lost reply it looks for the node. It continues as long as the node may exist, even when ctx has
// ended.
func (s *session) create(ctx context.Context, dir string, t locking.Token) (string, error) {
	for {
		if err := s.connected(ctx); err != nil {
			return "", err
		}
		path, err := send(s, func() (string, error) {
			return s.conn.Create(dir+"/"+t.String()+"-", []byte(s.service.config.Holder), zk.FlagEphemeralSequential, s.service.acl)
		})
		switch {
		case err == nil:
			return path, nil
		case errors.Is(err, zk.ErrNoNode):
			err = s.prepare(ctx, dir)
		case !isAnswer(err):
			if path, err = s.find(dir, t); path != "" {
				return path, nil
			}
		}
		if err != nil {
			return "", err
		}
	}
}

// prepare creates the directory of a lock. The servers remove it some time after it has become
// empty.
func (s *session) prepare(ctx context.Context, dir string) error {
	makeAt := func(path string, call func() (string, error)) error {
		_, err := retry(ctx, s, call)
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
	container := func() (string, error) { return s.conn.CreateContainer(dir, nil, zk.FlagContainer, s.service.acl) }
	err := makeAt(dir, container)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	root := s.service.backend.Root
	for i := 1; i <= len(root); i++ {
		if i < len(root) && root[i] != '/' {
			continue
		}
		err := makeAt(root[:i], func() (string, error) { return s.conn.Create(root[:i], nil, zk.FlagPersistent, s.service.acl) })
		if err != nil {
			return err
		}
	}
	return makeAt(dir, container)
}

// find looks for a node whose creation got no reply. When the leader has answered a later request,
// it has processed that one: it refuses requests of the session from another connection after that.
// find asks until a server answers, or the session ends.
func (s *session) find(dir string, t locking.Token) (string, error) {
	nodes, err := retry(s.life, s, func() ([]string, error) {
		if _, err := s.conn.Sync(dir); err != nil {
			return nil, err
		}
		nodes, _, err := s.conn.Children(dir)
		return nodes, err
	})
	i := slices.IndexFunc(nodes, func(node string) bool { return strings.HasPrefix(node, t.String()) })
	if i < 0 || err != nil {
		return "", notGone(err)
	}
	return dir + "/" + nodes[i], nil
}

// contenders lists the nodes of a lock.
func (s *session) contenders(ctx context.Context, dir string) ([]string, error) {
	return query(ctx, s, func() ([]string, error) {
		nodes, _, err := s.conn.Children(dir)
		return nodes, err
	})
}

// holder returns the owner of the first node of a lock, and since when it has been the first.
func (s *session) holder(ctx context.Context, dir, node string) (locking.Answer, error) {
	return query(ctx, s, func() (locking.Answer, error) {
		a := locking.Answer{Left: -1}
		data, stat, err := s.conn.Get(dir + "/" + node)
		if err != nil || !isOurs(node) {
			return a, err
		}
		a.Holder, a.Since = string(data), time.UnixMilli(stat.Mtime)
		a.Held = max(0, time.Since(a.Since))
		return a, nil
	})
}

// writeHolder notes in a node that has waited when it has become the first one.
func (s *session) writeHolder(ctx context.Context, path string) error {
	_, err := query(ctx, s, func() (*zk.Stat, error) { return s.conn.Set(path, []byte(s.service.config.Holder), -1) })
	return err
}

// confirm checks whether a node exists. It uses a transaction, which needs the leader and a
// majority: a server that is cut off from these would answer a simple read. A transaction wakes no
// waiters.
func (s *session) confirm(ctx context.Context, path string) error {
	_, err := query(ctx, s, func() ([]zk.MultiResponse, error) {
		return s.conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
	})
	return err
}

// sync returns when the server that answers knows what the leader knew.
func (s *session) sync(ctx context.Context, path string) error {
	_, err := query(ctx, s, func() (string, error) { return s.conn.Sync(path) })
	return err
}

// remove1 removes a node, retrying while the session lives, and reports whether the node existed.
func (s *session) remove1(path string) (was bool, err error) {
	tries := 0
	_, err = retry(s.life, s, func() (struct{}, error) {
		tries++
		return struct{}{}, s.conn.Delete(path, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return tries > 1, nil // an earlier copy of the request has removed it
	}
	return err == nil, err
}

func (s *session) remove(path string) { _, _ = s.remove1(path) }

// unanswered returns the error of a call that ctx has ended.
func (s *session) unanswered(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != nil {
		return fmt.Errorf("%w; the last problem with a server: %w", context.Cause(ctx), s.problem)
	}
	return context.Cause(ctx)
}
