package examples

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/redis/go-redis/v9"
)

// SessionsACL makes the Redis account of the sessions.
const SessionsACL = "ACL SETUSER shop_sessions on >change-me-9 -@all +select +get +set +eval +evalsha ~shop:session:*"

// NewSessions creates the user sessions of a shop in the Redis of locks and limits. A full cache
// then logs no user out, and a logout is final. Handlers run within the LoadAndSave of the result,
// which adds Set-Cookie. While Redis is unavailable, requests with a cookie get 500, or the answer
// of ErrorFunc.
//
// Concurrent requests of one browser overwrite each other's sessions: keep only the login there,
// and a cart in MySQL. A request that runs during a login may restore the old cookie; the user
// then logs in again. Limit logins before you check the password. The Iterate of scs panics with
// this store.
func NewSessions(state redis.UniversalClient) *scs.SessionManager {
	sessions := scs.New()
	sessions.Store = sessionStore{state}
	sessions.Lifetime, sessions.IdleTimeout = 12*time.Hour, time.Hour
	sessions.HashTokenInStore = true // a reader of Redis or its files gets no cookie that works
	sessions.Cookie.Name, sessions.Cookie.Secure = "__Host-session", true
	return sessions
}

// logIn begins a session of an account whose password was right. The token is a new one, since an
// attacker may know the old one. The account's row in MySQL has an AUTO_INCREMENT id, which no
// later account of the same name gets, and a generation. Both are from the SELECT of the password.
func logIn(ctx context.Context, sessions *scs.SessionManager, account, generation int64) error {
	if err := sessions.RenewToken(ctx); err != nil {
		return err
	}
	sessions.Put(ctx, "account", account)
	sessions.Put(ctx, "generation", generation)
	return nil
}

// signedIn returns the id of the account of a request's session, or 0. It compares the generation
// in each request: a lookup by primary key, on the primary.
func signedIn(ctx context.Context, sessions *scs.SessionManager, db *sql.DB) (account int64, err error) {
	if account = sessions.GetInt64(ctx, "account"); account == 0 {
		return 0, nil
	}
	var generation int64
	err = db.QueryRowContext(ctx, "SELECT generation FROM accounts WHERE id = ?", account).Scan(&generation)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return 0, err
	case err != nil || generation != sessions.GetInt64(ctx, "generation"):
		return 0, sessions.Destroy(ctx)
	}
	return account, nil
}

// logOutEverywhere ends all sessions of an account when tx commits, even if Redis loses writes, or
// a login with the old password still runs. Only this logout is permanent. Change a password in
// the same transaction, then log this browser in again.
func logOutEverywhere(ctx context.Context, tx *sql.Tx, account int64) error {
	_, err := tx.ExecContext(ctx, "UPDATE accounts SET generation = generation + 1 WHERE id = ?", account)
	return err
}

// logOut ends a session, for other requests that are under way as well.
func logOut(ctx context.Context, sessions *scs.SessionManager) error { return sessions.Destroy(ctx) }

// A sessionStore keeps sessions in Redis. One that was destroyed leaves an empty value for as long
// as a request may take, so that a request that has read the session before does not store it
// again. The store of scs for go-redis, goredisstore, writes with a plain SET:
//   - A request that ends after a logout stores the session again, so the cookie still works.
//   - A request that ends after the session has expired stores it without a TTL.
//
// With an IdleTimeout, every request stores its session. goredisstore does not support Cluster.
type sessionStore struct{ state redis.UniversalClient }

const (
	sessionPrefix  = "shop:session:"
	longestRequest = time.Hour
)

var commitSession = redis.NewScript(`
if redis.call("GET", KEYS[1]) ~= "" then redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2]) end
return redis.status_reply("OK")`)

func (s sessionStore) FindCtx(ctx context.Context, token string) (data []byte, found bool, err error) {
	data, err = s.state.Get(ctx, sessionPrefix+token).Bytes()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return data, len(data) > 0, err
}

func (s sessionStore) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	left := time.Until(expiry).Milliseconds()
	if left <= 0 { // the request has outlived the session
		return nil
	}
	return commitSession.Run(ctx, s.state, []string{sessionPrefix + token}, data, left).Err()
}

func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.state.Set(ctx, sessionPrefix+token, "", longestRequest).Err()
}

func (s sessionStore) Find(token string) (data []byte, found bool, err error) {
	return s.FindCtx(context.Background(), token)
}

func (s sessionStore) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

func (s sessionStore) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }
