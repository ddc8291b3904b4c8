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

// begin sets a session cookie, and end removes it.
func (s *signer) begin(w http.ResponseWriter, r *http.Request, token string) {
	s.set(w, r, sign(token, time.Now().Add(sessionLasts).Unix()), int(sessionLasts.Seconds()))
}

func (s *signer) end(w http.ResponseWriter, r *http.Request) { s.set(w, r, "", -1) }

func (s *signer) set(w http.ResponseWriter, r *http.Request, value string, age int) {
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
		c.write(w, r, http.StatusOK, "login", nil)
	})
	mux.HandleFunc("POST "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		from := []any{"from", r.RemoteAddr, "forwarded_for", r.Header.Get("X-Forwarded-For")}
		select {
		case places <- struct{}{}:
		default:
			c.cfg.Logger.Warn("a login to the console was refused: too many fail at once", from...)
			c.write(w, r, http.StatusTooManyRequests, "login", "Too many logins fail now. Try again in a few seconds.")
			return
		}
		token := s.token()
		if same(strings.TrimSpace(r.PostFormValue("token")), token) {
			<-places
			c.cfg.Logger.Info("a person logged in to the console", from...)
			s.begin(w, r, token)
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		time.AfterFunc(loginPause, func() { <-places })
		c.cfg.Logger.Warn("a login to the console failed: the token was wrong", from...)
		if sleep.For(r.Context(), loginPause) == nil {
			c.write(w, r, http.StatusUnauthorized, "login", "This is not the token.")
		}
	})
}
