package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that the kernel hands out to outgoing connections, so that a server that is
// killed and restarted finds its own port still free.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePort returns a port that nobody listens on now. Somebody may take it before the server does: see portTaken.
func freePort() (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !portTaken(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: none in 200 tries between %d and %d", firstPort, lastPort)
}

// portTaken reports whether somebody listens on the port.
func portTaken(port int) bool {
	l, err := net.Listen("tcp4", address(port))
	if err != nil {
		return true
	}
	_ = l.Close()
	return false
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
