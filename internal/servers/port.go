package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports are taken from below the range that the kernel hands out to outgoing connections, so that
// what is stopped and started again finds its own port still free.
const (
	first = 20000
	last  = 31999
)

// next is the offset of the port that Free tries next. Processes begin in different places.
var next atomic.Uint32

func init() { next.Store(rand.Uint32N(last - first + 1)) }

// FreePort returns a port that nobody listens on now, and that this process has not got lately. Another
// process may take it before the caller does: see Taken.
func FreePort() (int, error) {
	for range 200 {
		port := first + int(next.Add(1)%(last-first+1))
		if !PortTaken(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: none in 200 tries between %d and %d", first, last)
}

// PortTaken reports whether somebody listens on the port.
func PortTaken(port int) bool {
	l, err := net.Listen("tcp4", PortAddress(port))
	if err != nil {
		return true
	}
	_ = l.Close()
	return false
}

// PortAddress returns where this machine reaches the port.
func PortAddress(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
