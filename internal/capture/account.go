package capture

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// An Account is one of the server's, such as unstale_capture@localhost. Its text quotes both parts.
type Account struct{ User, Host string }

// ParseAccount reads user@host, with or without quotes; without a host it is any.
func ParseAccount(text string) (Account, error) {
	user, host := text, "%"
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		user, host = text[:at], text[at+1:]
	}
	a := Account{trimQuotes(user), trimQuotes(host)}
	if a.User == "" || a.Host == "" || strings.ContainsAny(text, "\x00\n") {
		return Account{}, fmt.Errorf("%q is not an account; write it as user@host", text)
	}
	return a, nil
}

func trimQuotes(text string) string {
	if n := len(text); n > 1 && text[0] == text[n-1] && strings.IndexByte("'`\"", text[0]) >= 0 {
		return text[1 : n-1]
	}
	return text
}

func (a Account) String() string { return literal(a.User) + "@" + literal(a.Host) }

// is reports whether the dictionary means the account, which it shows without quotes.
func (a Account) is(definer string) bool {
	at := strings.LastIndexByte(definer, '@')
	return at >= 0 && definer[:at] == a.User && strings.EqualFold(definer[at+1:], a.Host) // hosts are kept in lower case
}

// currentAccount is the connection's own.
func currentAccount(ctx context.Context, db *sql.DB) (Account, error) {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&text); err != nil {
		return Account{}, fmt.Errorf("ask for the account: %w", err)
	}
	at := strings.LastIndexByte(text, '@')
	return Account{text[:max(at, 0)], text[at+1:]}, nil
}
