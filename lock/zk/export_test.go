package zk

import "github.com/unstale/unstale/lock/internal/locking"

// ServerOf returns the address of the server that a Service has its session with.
func ServerOf(s locking.Service) string {
	session, _ := s.(*service).current()
	return session.conn.Server()
}

// Position is position.
var Position = position
