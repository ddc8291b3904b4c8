package examples

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/redis/go-redis/v9"
)

// NewSessions makes the sessions of a shop.
func NewSessions(state redis.UniversalClient) *scs.SessionManager {
	sessions := scs.New()
	sessions.Store = sessionStore{state}
	sessions.Lifetime, sessions.IdleTimeout = 12*time.Hour, time.Hour
	sessions.HashTokenInStore = true // whoever reads Redis or its files gets no cookie that works
	sessions.Cookie.Name, sessions.Cookie.Secure = "__Host-session", true
	return sessions
}

// logIn begins a session of an account whose password was right. The token is a new one, since
// somebody else may know the old one. The account's id and generation are from the SELECT that has
// read the password.
func logIn(ctx context.Context, sessions *scs.SessionManager, account, generation int64) error {
	if err := sessions.RenewToken(ctx); err != nil {
		return err
	}
	sessions.Put(ctx, "account", account)
	sessions.Put(ctx, "generation", generation)
	return nil
}

// signedIn returns the id of the account of a request's session, or 0.
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

// logOutEverywhere ends all sessions of an account when tx commits, and logins under way.
func logOutEverywhere(ctx context.Context, tx *sql.Tx, account int64) error {
	_, err := tx.ExecContext(ctx, "UPDATE accounts SET generation = generation + 1 WHERE id = ?", account)
	return err
}

// logOut ends a session, for other requests that are under way as well.
func logOut(ctx context.Context, sessions *scs.SessionManager) error { return sessions.Destroy(ctx) }

// A sessionStore keeps sessions in Redis. One that was destroyed leaves an empty value for as long
// as a request may take, so that a request that has read the session before does not store it
// again.
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
