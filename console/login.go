package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

const (
	sessionCookie = "unstale_session"
	sessionLasts  = 12 * time.Hour
)

// A signer makes and checks session cookies. They need no store, so every process with the token
// accepts them, and a new token ends them. Safe for concurrent use.
type signer struct {
	cfg  Config
	mu   sync.Mutex
	last string // the token; "": there is none
	told string // why its file could not be used last
}

func newSigner(cfg Config) (s *signer, err error) {
	s = &signer{cfg: cfg}
	if cfg.hasToken() {
		s.last, err = cfg.readToken()
	}
	return s, err
}

// token returns the token, or "" if there is none.
func (s *signer) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.TokenFile != "" {
		switch token, err := s.cfg.readToken(); {
		case err == nil:
			s.last, s.told = token, ""
		case err.Error() != s.told:
			s.told = err.Error()
			s.cfg.Logger.Warn("the console cannot use its new token: the last one still counts", "error", err)
		}
	}
	return s.last
}

// sign returns the value of a cookie that is valid until end.
func sign(token string, end int64) string {
	mac := hmac.New(sha256.New, []byte(token))
	text := strconv.FormatInt(end, 10)
	_, _ = mac.Write([]byte("console session " + text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

// knows reports whether a request has a valid session.
func (s *signer) knows(r *http.Request) bool {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(cookie.Value, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	return err == nil && end > time.Now().Unix() && same(cookie.Value, sign(s.token(), end))
}

// serves reports whether an open page may still see more: its session may have ended.
func (s *signer) serves(r *http.Request) bool { return !s.cfg.hasToken() || s.knows(r) }

// setCookie sets the session cookie for an age in seconds, or removes it if that is negative.
func (s *signer) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, MaxAge: age, Path: s.cfg.Prefix + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// A failed login takes its place for a second, even if the client leaves. There are a few, which
// limits guesses.
const (
	loginPause  = time.Second
	loginPlaces = 4
)

// loginRoutes serve the page where a person enters the token.
func (c *Console) loginRoutes(mux *http.ServeMux, s *signer) {
	home, places := c.cfg.Prefix+"/", make(chan struct{}, loginPlaces)
	mux.HandleFunc("GET "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		if s.knows(r) {
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		c.writePage(w, r, http.StatusOK, "login", nil)
	})
	mux.HandleFunc("POST "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		from := []any{"from", r.RemoteAddr, "forwarded_for", r.Header.Get("X-Forwarded-For")}
		select {
		case places <- struct{}{}:
		default:
			c.cfg.Logger.Warn("a login to the console was refused: too many fail at once", from...)
			c.writePage(w, r, http.StatusTooManyRequests, "login", "Too many logins fail now. Try again in a few seconds.")
			return
		}
		token := s.token()
		if same(strings.TrimSpace(r.PostFormValue("token")), token) {
			<-places
			c.cfg.Logger.Info("a person logged in to the console", from...)
			s.setCookie(w, r, sign(token, time.Now().Add(sessionLasts).Unix()), int(sessionLasts.Seconds()))
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		time.AfterFunc(loginPause, func() { <-places })
		c.cfg.Logger.Warn("a login to the console failed: the token was wrong", from...)
		if sleep.For(r.Context(), loginPause) == nil {
			c.writePage(w, r, http.StatusUnauthorized, "login", "This is not the token.")
		}
	})
}

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
	case path == "/login", strings.HasPrefix(path, "/static/"): // they need no session
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
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains([]string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}, name) {
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
