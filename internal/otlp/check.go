package otlp

import (
	"errors"
	"net/url"
	"strings"
)

// CheckEndpoint says what is wrong with the URL of a collector. The error shows nothing of it, since it may hold a secret.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		return errors.New("wanted a URL with http or https and a host, such as http://127.0.0.1:4318")
	}
	return nil
}

// Redacted is an endpoint without what may be secret, as a path may be too.
func Redacted(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// CheckHeader says what is wrong with a header, whose value is a secret.
func CheckHeader(name, value string) error {
	letter := func(c rune) bool { return c > ' ' && c < 0x7f && !strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) }
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return !letter(c) }) {
		return errors.New("a header's name is empty, or has a character that none may have")
	}
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return errors.New("the value of the header " + name + " has a control character")
	}
	return nil
}
