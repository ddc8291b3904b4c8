package testenv

import (
	"net"
	"testing"
)

// HostAddress returns an IPv4 address of this host that is not a loopback address, or "" if it has
// none. A Redis in protected mode refuses connections from such an address.
func HostAddress(t testing.TB) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}
