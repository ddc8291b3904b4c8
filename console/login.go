package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	sessionCookie = "unstale_session"
	sessionLasts  = 12 * time.Hour
)

// A signer makes and checks session cookies. They need no store, so every process with the token
// accepts them, and a new token ends them.
type signer struct {
	token  string
	prefix string
}

// sign returns the value of a cookie that is valid until end.
func (s signer) sign(end int64) string {
	mac := hmac.New(sha256.New, []byte(s.token))
	text := strconv.FormatInt(end, 10)
	_, _ = mac.Write([]byte("console session " + text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

// knows reports whether a request has a valid session.
func (s signer) knows(r *http.Request) bool {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(cookie.Value, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	return err == nil && end > time.Now().Unix() && same(cookie.Value, s.sign(end))
}

// begin sets a session cookie, and end removes it.
func (s signer) begin(w http.ResponseWriter, r *http.Request) {
	s.set(w, r, s.sign(time.Now().Add(sessionLasts).Unix()), int(sessionLasts.Seconds()))
}

func (s signer) end(w http.ResponseWriter, r *http.Request) { s.set(w, r, "", -1) }

func (s signer) set(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, MaxAge: age, Path: s.prefix + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// loginRoutes serve the page where a person enters the token.
func (c *Console) loginRoutes(mux *http.ServeMux, s signer) {
	home := c.cfg.Prefix + "/"
	mux.HandleFunc("GET "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		if s.knows(r) {
			http.Redirect(w, r, home, http.StatusSeeOther)
			return
		}
		c.write(w, r, http.StatusOK, "login", nil)
	})
	mux.HandleFunc("POST "+c.cfg.Prefix+"/login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		if !same(strings.TrimSpace(r.PostFormValue("token")), c.cfg.Token) {
			c.write(w, r, http.StatusUnauthorized, "login", "This is not the token.")
			return
		}
		s.begin(w, r)
		http.Redirect(w, r, home, http.StatusSeeOther)
	})
}
