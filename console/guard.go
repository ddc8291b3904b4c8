package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// secretHeader is the header of a proxy's secret, which proves that a request comes from the proxy.
const secretHeader = "X-Unstale-Proxy-Secret"

// policy lets a page load its own files and nothing else, without inline code or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// A guard decides which requests reach the page.
type guard struct {
	cfg     Config
	signer  *signer
	inside  http.Handler // for authenticated requests
	outside http.Handler // for the login page and static files
	write   func(w http.ResponseWriter, r *http.Request, status int, name string, data any)
	origins http.CrossOriginProtection
}

// public reports whether a path, without the prefix, needs no session.
func public(path string) bool { return path == "/login" || strings.HasPrefix(path, "/static/") }

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // browsers without frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := g.origins.Check(r); err != nil || isForeign(r) {
		g.refuse(w, r, http.StatusForbidden, "cross-origin request refused")
		return
	}
	path, inPrefix := strings.CutPrefix(r.URL.Path, g.cfg.Prefix)
	switch {
	case !inPrefix || path != "" && path[0] != '/':
		g.refuse(w, r, http.StatusNotFound, "the console is at "+g.cfg.Prefix+"/")
	case g.cfg.ProxySecret != "":
		g.behindProxy(w, r)
	case !g.cfg.hasToken():
		g.onLoopback(w, r)
	case public(path):
		g.outside.ServeHTTP(w, r)
	case g.signer.knows(r):
		g.inside.ServeHTTP(w, r)
	case r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Dest") != "empty": // not a script
		http.Redirect(w, r, g.cfg.Prefix+"/login", http.StatusSeeOther)
	default:
		g.refuse(w, r, http.StatusUnauthorized, "log in first: open "+g.cfg.Prefix+"/login")
	}
}

// refuse serves an error page without what only people who may see the console need.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	g.write(w, r, status, "refused", failure{status, text})
}

// isForeign reports whether a page of another site asks, other than by a link to a page.
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && (r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document")
}

func (g *guard) behindProxy(w http.ResponseWriter, r *http.Request) {
	if !same(r.Header.Get(secretHeader), g.cfg.ProxySecret) || r.Header.Get(g.cfg.UserHeader) == "" {
		g.refuse(w, r, http.StatusForbidden, "this page is served only through its proxy, which sends "+g.cfg.UserHeader+" and "+secretHeader)
		return
	}
	g.inside.ServeHTTP(w, r)
}

// onLoopback serves requests that come directly from this host. A page of another site whose name
// was rebound to a loopback address has its own name in Host. Most proxies that forward requests of
// other hosts add a header; one that does not cannot be detected.
func (g *guard) onLoopback(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case local == nil || !isLoopback(hostOf(local.String())) || isForwarded(r.Header):
		g.refuse(w, r, http.StatusForbidden, "without a token or a proxy secret, this page is served only to its own host")
	case !isLoopback(hostOf(r.Host)):
		g.refuse(w, r, http.StatusMisdirectedRequest, "the Host header must be localhost or a loopback address")
	default:
		g.inside.ServeHTTP(w, r)
	}
}

// isForwarded reports whether a request has a header that a proxy adds.
func isForwarded(h http.Header) bool {
	for name := range h {
		switch {
		case strings.HasPrefix(name, "X-Forwarded-"):
			return true
		case slices.Contains([]string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}, name):
			return true
		}
	}
	return false
}

// user returns the name of the person that a proxy has authenticated, or "".
func (c Config) user(r *http.Request) string {
	if c.UserHeader == "" {
		return ""
	}
	return r.Header.Get(c.UserHeader)
}

// same compares two secrets in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// hostOf removes the port from an address, if it has one.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

// isLoopback reports whether a host is localhost or a loopback address, without resolving it.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
