package examples

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alexedwards/scs/goredisstore"
	"github.com/alexedwards/scs/v2"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// A sessionShop answers requests, each of which is a browser's with one cookie or none.
type sessionShop struct {
	t             *testing.T
	server        *servers.Redis
	state, admin  *redis.Client
	db            *sql.DB
	rules         []string // of the account; a restart drops them
	handler       http.Handler
	begun, finish chan struct{} // a slow request has read its session, and may store it
}

// newSessionShop has a Redis with settings, and the account of SessionsACL.
func newSessionShop(t *testing.T, settings ...string) *sessionShop {
	t.Helper()
	_, rules, found := strings.Cut(SessionsACL, ">change-me-9 ")
	if !found {
		t.Fatal("SessionsACL has no password")
	}
	s := &sessionShop{t: t, server: testenv.OwnRedis(t, settings...), begun: make(chan struct{}), finish: make(chan struct{})}
	s.state = redis.NewClient(&redis.Options{
		Addr: s.server.Addr(), Username: "shop_sessions", Password: "secret",
		ContextTimeoutEnabled: true, DisableIdentity: true, MaxRetries: 1, DialerRetries: 1, ReadTimeout: time.Minute,
	})
	s.admin = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	s.rules = append(strings.Fields(rules), "on", ">secret")
	testenv.SetUser(t, s.admin, "shop_sessions", s.rules...)
	t.Cleanup(func() { _, _ = s.state.Close(), s.admin.Close() })
	s.db = testenv.MySQL(t).DB
	run(t, s.db, "CREATE TABLE accounts (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(50) NOT NULL UNIQUE, password VARCHAR(50) NOT NULL, generation BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO accounts (id, name, password) VALUES (1, 'ada', 'old'), (2, 'bob', 'old')")
	s.serve(NewSessions(s.state))
	return s
}

func (s *sessionShop) serve(sessions *scs.SessionManager) {
	answer := func(do func(r *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := do(r); err != nil {
				s.t.Error(err)
			}
			account, err := signedIn(r.Context(), sessions, s.db)
			if err != nil {
				s.t.Error(err)
			}
			var name string
			err = s.db.QueryRowContext(r.Context(), "SELECT COALESCE((SELECT name FROM accounts WHERE id = ?), '')", account).Scan(&name)
			if err != nil {
				s.t.Error(err)
			}
			fmt.Fprint(w, name)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/login/{name}", answer(func(r *http.Request) error {
		var account, generation int64
		err := s.db.QueryRowContext(r.Context(), "SELECT id, generation FROM accounts WHERE name = ? AND password = 'old'", r.PathValue("name")).Scan(&account, &generation)
		if err != nil {
			return err
		}
		if r.URL.RawQuery == "slow" {
			s.pause()
		}
		return logIn(r.Context(), sessions, account, generation)
	}))
	mux.Handle("/logout", answer(func(r *http.Request) error { return logOut(r.Context(), sessions) }))
	mux.Handle("/account", answer(func(*http.Request) error { return nil }))
	mux.Handle("/browse", answer(func(r *http.Request) error {
		sessions.Put(r.Context(), "seen", 42)
		return nil
	}))
	mux.Handle("/slow", answer(func(*http.Request) error {
		s.pause()
		return nil
	}))
	s.handler = sessions.LoadAndSave(mux)
}

// pause holds a slow request up until the test lets it finish, or ends.
func (s *sessionShop) pause() {
	s.begun <- struct{}{}
	select {
	case <-s.finish:
	case <-s.t.Context().Done():
	}
}

// visit returns whose session it is, and the browser's cookie after it.
func (s *sessionShop) visit(path, cookie string) (account, after string) {
	s.t.Helper()
	w := s.answer(path, cookie)
	if w.Code != http.StatusOK {
		s.t.Errorf("%s: %d, %s", path, w.Code, w.Body)
	}
	for _, c := range w.Result().Cookies() {
		if cookie = c.Value; !c.Secure || !c.HttpOnly || c.Path != "/" {
			s.t.Errorf("%s", c)
		}
	}
	return w.Body.String(), cookie
}

func (s *sessionShop) answer(path, cookie string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequestWithContext(s.t.Context(), "GET", path, nil), httptest.NewRecorder()
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: "__Host-session", Value: cookie})
	}
	s.handler.ServeHTTP(w, r)
	return w
}

// wantAccount wants a cookie to be good for an account's session, or for none.
func (s *sessionShop) wantAccount(cookie, account string) {
	s.t.Helper()
	if got, _ := s.visit("/account", cookie); got != account {
		s.t.Errorf("the session is of %q, wanted %q", got, account)
	}
}

// A login makes a cookie that nobody has known before. A logout ends the session, also for a
// request that has read it before.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := newSessionShop(t)
	_, before := s.visit("/browse", "")
	_, cookie := s.visit("/login/ada", before)
	if before == "" || cookie == before {
		t.Errorf("a login keeps the cookie %q", before)
	}
	s.wantAccount(cookie, "ada")
	s.wantAccount(before, "")
	if names := s.admin.Keys(t.Context(), "*").Val(); len(names) != 2 || strings.Contains(fmt.Sprint(names), cookie) {
		t.Errorf("in Redis there are %q for the cookies %q and %q", names, before, cookie)
	}
	s.logOutBeside(cookie)
	s.wantAccount(cookie, "")
	if refused, err := s.admin.ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("Redis refused %+v, %v", refused, err)
	}
	for _, name := range s.admin.Keys(t.Context(), "*").Val() {
		if left := s.admin.TTL(t.Context(), name).Val(); left <= 0 || left > time.Hour {
			t.Errorf("%s is kept for %s", name, left)
		}
	}
}

// With the store that scs has for go-redis a request that goes on while its session ends brings it
// back, and one that outlives it keeps it indefinitely, as the comment of sessionStore says.
func TestRequestsThatGoOn(t *testing.T) {
	t.Parallel()
	s := newSessionShop(t)
	plain := goredisstore.NewWithPrefix(s.admin, sessionPrefix) // which needs more rights
	theirs := NewSessions(s.admin)
	theirs.Store = plain
	s.serve(theirs)
	_, cookie := s.visit("/login/ada", "")
	s.logOutBeside(cookie)
	s.wantAccount(cookie, "ada")

	for name, store := range map[string]scs.CtxStore{"theirs": plain, "ours": sessionStore{s.state}} {
		if err := store.CommitCtx(t.Context(), name, []byte("x"), time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
		_, found, err := store.FindCtx(t.Context(), name)
		left := s.admin.TTL(t.Context(), sessionPrefix+name).Val()
		if err != nil || found != (name == "theirs") || (left == -1) != found {
			t.Errorf("%s: found %t, kept for %s, %v", name, found, left, err)
		}
	}
}

// Redis is killed: with the settings of docs/redis.md it knows who is logged in and who has logged
// out, and without a file, which has no snapshots here, it does not.
func TestSessionsOutliveRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings []string
		account  string
	}{
		{[]string{"--appendonly", "yes", "--appendfsync", "always"}, "ada"},
		{nil, ""},
	} {
		s := newSessionShop(t, c.settings...)
		_, in := s.visit("/login/ada", "")
		_, out := s.visit("/login/ada", "")
		s.visit("/logout", out)
		if err := s.server.Kill(); err != nil {
			t.Fatal(err)
		}
		if with, without := s.answer("/account", in).Code, s.answer("/account", "").Code; with != 500 || without != 200 {
			t.Errorf("while Redis is away the answers are %d with a cookie and %d without", with, without)
		}
		if err := s.server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		testenv.SetUser(t, s.admin, "shop_sessions", s.rules...)
		s.wantAccount(in, c.account)
		s.wantAccount(out, "")
	}
}

// Once a new password is committed, no session of the account is good: in no browser, for no request
// or login under way, nor if Redis restores it. Those of other accounts are.
func TestLogOutEverywhere(t *testing.T) {
	t.Parallel()
	s := newSessionShop(t)
	_, one := s.visit("/login/ada", "")
	_, two := s.visit("/login/ada", "")
	_, bob := s.visit("/login/bob", "")
	names := s.admin.Keys(t.Context(), "*").Val()
	saved := s.admin.MGet(t.Context(), names...).Val()
	change := func(end func(*sql.Tx) error) {
		t.Helper()
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(t.Context(), "UPDATE accounts SET password = 'new' WHERE name = 'ada'"); err != nil {
			t.Fatal(err)
		}
		if err := logOutEverywhere(t.Context(), tx, 1); err != nil {
			t.Fatal(err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	change((*sql.Tx).Rollback)
	s.wantAccount(one, "ada")
	if late := s.beside("/login/ada?slow", "", func() { change((*sql.Tx).Commit) }); late != "" {
		t.Errorf("a login with the old password is of %q", late)
	}
	s.wantAccount(two, "")
	s.wantAccount(one, "")
	s.wantAccount(bob, "bob")
	for i, name := range names {
		if err := s.admin.Set(t.Context(), name, saved[i], time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.wantAccount(one, "")
	run(t, s.db, "UPDATE accounts SET password = 'old'")
	_, again := s.visit("/login/ada", one)
	s.wantAccount(again, "ada")
	run(t, s.db, "DELETE FROM accounts", "INSERT INTO accounts (name, password) VALUES ('bob', 'old')")
	s.wantAccount(again, "")
	s.wantAccount(bob, "") // of another account with that name
}

// logOutBeside ends a session while a slow request goes on that has read it before.
func (s *sessionShop) logOutBeside(cookie string) {
	s.t.Helper()
	account := s.beside("/slow", cookie, func() {
		if _, after := s.visit("/logout", cookie); after != "" {
			s.t.Errorf("the browser keeps the cookie %q", after)
		}
		s.wantAccount(cookie, "")
	})
	if account != "ada" {
		s.t.Errorf("the slow request is of %q", account)
	}
}

// beside calls do while a slow request goes on, and returns whose that is.
func (s *sessionShop) beside(path, cookie string, do func()) string {
	s.t.Helper()
	slow := make(chan string, 1)
	go func() {
		account, _ := s.visit(path, cookie)
		slow <- account
	}()
	select {
	case <-s.begun:
	case account := <-slow:
		s.t.Fatalf("the slow request is over before it is slow: %q", account)
	}
	do()
	s.finish <- struct{}{}
	return <-slow
}
