package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
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
	last string // the token
}

// token returns the token, or "" if there is none.
func (s *signer) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == "" || s.cfg.TokenFile != "" {
		if token, err := s.cfg.readToken(); err == nil {
			s.last = token
		}
	}
	return s.last
}

// sign returns the value of a cookie that is valid until end.
func (s *signer) sign(end int64) string {
	mac := hmac.New(sha256.New, []byte(s.token()))
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
	return err == nil && end > time.Now().Unix() && same(cookie.Value, s.sign(end))
}

// serves reports whether an open page may still see more: its session may have ended.
func (s *signer) serves(r *http.Request) bool { return !s.cfg.hasToken() || s.knows(r) }

// begin sets a session cookie, and end removes it.
func (s *signer) begin(w http.ResponseWriter, r *http.Request) {
	s.set(w, r, s.sign(time.Now().Add(sessionLasts).Unix()), int(sessionLasts.Seconds()))
}

func (s *signer) end(w http.ResponseWriter, r *http.Request) { s.set(w, r, "", -1) }

func (s *signer) set(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, MaxAge: age, Path: s.cfg.Prefix + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// loginPause is how long a failed login takes. Only one fails at a time, which limits guesses.
const loginPause = time.Second

// loginRoutes serve the page where a person enters the token.
func (c *Console) loginRoutes(mux *http.ServeMux, s *signer) {
	home, failing := c.cfg.Prefix+"/", make(chan struct{}, 1)
	mux.HandleFunc("GET "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		if s.knows(r) {
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		c.write(w, r, http.StatusOK, "login", nil)
	})
	mux.HandleFunc("POST "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		from := []any{"from", r.RemoteAddr, "forwarded_for", r.Header.Get("X-Forwarded-For")}
		if same(strings.TrimSpace(r.PostFormValue("token")), s.token()) {
			c.cfg.Logger.Info("a person logged in to the console", from...)
			s.begin(w, r)
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		select {
		case failing <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-failing }()
		c.cfg.Logger.Warn("a login to the console failed: the token was wrong", from...)
		if sleep.For(r.Context(), loginPause) == nil {
			c.write(w, r, http.StatusUnauthorized, "login", "This is not the token.")
		}
	})
}
