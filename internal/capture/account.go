package capture

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// An Account is an account of the server, for example unstale_capture@localhost. Its text quotes
// both parts.
type Account struct{ User, Host string }

// ParseAccount parses user@host, with or without quotes. Without a host, the account has any host.
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

// is reports whether definer is the account in the dictionary's format, without quotes.
func (a Account) is(definer string) bool {
	at := strings.LastIndexByte(definer, '@')
	// hosts are stored in lower case
	return at >= 0 && definer[:at] == a.User && strings.EqualFold(definer[at+1:], a.Host)
}

// currentAccount returns the account of the connection.
func currentAccount(ctx context.Context, db *sql.DB) (Account, error) {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&text); err != nil {
		return Account{}, fmt.Errorf("ask for the account: %w", err)
	}
	at := strings.LastIndexByte(text, '@')
	return Account{text[:max(at, 0)], text[at+1:]}, nil
}
