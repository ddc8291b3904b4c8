// Package credentials reads secrets from files, such as those that an orchestrator mounts, configures
// TLS from PEM files, and names the fix for a certificate that the client or the server refuses.
//
// PEM files are read for each new connection, so a certificate can change while a program runs.
// Errors about a secret name its file and never quote its content.
package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// TLSCure returns the fix, or "" if no certificate was refused. prefix begins the names of the
// client's variables, such as REDIS_TLS_; without one, Cure names fields of its tls.Config.
func TLSCure(err error, prefix string) string {
	authority, name := "RootCAs of the client's tls.Config", "ServerName of the client's tls.Config"
	if prefix != "" {
		authority, name = prefix+"CA_FILE", prefix+"SERVER_NAME"
	}
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate") {
		if prefix == "" {
			return "set Certificates of the client's tls.Config to a certificate that the server accepts"
		}
		return "name a certificate that the server accepts in " + prefix + "CERT_FILE"
	}
	if !errors.As(err, new(*tls.CertificateVerificationError)) {
		return ""
	}
	invalid := x509.CertificateInvalidError{}
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return "connect by a name that the server's certificate has, or set " + name + " to one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, or correct the clock of this host"
	}
	return "trust the authority that has signed the server's certificate: name it in " + authority + " or in SSL_CERT_FILE, or add it to the system's"
}

// WithTLSCure adds the fix to an error, if there is one.
func WithTLSCure(err error, prefix string) error {
	if cure := TLSCure(err, prefix); cure != "" {
		return fmt.Errorf("%w; %s", err, cure)
	}
	return err
}

// TLSFiles are the settings of a client. The zero value changes nothing.
type TLSFiles struct {
	CA         string // file of the authorities of the server's certificate; "": the system's
	Cert, Key  string // files of the client's certificate and of its key; "": none
	ServerName string // name that the server's certificate must have; "": the host's
}

// Given reports whether any is set.
func (f TLSFiles) Given() bool { return f != TLSFiles{} }

// Config returns a copy of base, or TLS 1.2 or newer if that is nil, with the present content of
// the files. Errors name the file.
func (f TLSFiles) Config(base *tls.Config) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		config = base.Clone()
	}
	if config.InsecureSkipVerify && (f.CA != "" || f.ServerName != "") {
		return nil, errors.New("an authority or a server name is given, but certificates are not checked; remove skip-verify or preferred")
	}
	if f.ServerName != "" {
		config.ServerName = f.ServerName
	}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err // it names the path
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New(f.CA + " has no certificate in PEM")
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return config, nil
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("a client needs both its certificate and its key; give both files")
	}
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	config.Certificates = []tls.Certificate{own}
	return config, nil
}

// Dialer returns a function that connects with TLS. ctx also bounds the handshake.
func (f TLSFiles) Dialer(base *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		config, err := f.Config(base)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	}
}

// SecretSuffix ends the name of a variable that holds the path of a file with the value.
const SecretSuffix = "_FILE"

// ReadSecret returns the content of a file without newlines at its end. An empty file is an error, since
// a program may just be writing it. So are several lines: a comment would become part of a secret.
func ReadSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err // it names the path
	}
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case text == "":
		return "", errors.New(path + " is empty")
	case strings.ContainsAny(text, "\r\n"):
		return "", errors.New(path + " has several lines; write the secret alone, in one line")
	}
	return text, nil
}

// SecretFromEnv returns the path in variable NAME_FILE and the content of that file, or the value of
// variable
// NAME and no path. It returns an error if both are set. An empty variable counts as unset. lookup
// works like os.LookupEnv.
func SecretFromEnv(name string, lookup func(string) (string, bool)) (value, path string, err error) {
	value, _ = lookup(name)
	path, _ = lookup(name + SecretSuffix)
	switch {
	case path == "":
		return value, "", nil
	case value != "":
		return "", "", fmt.Errorf("%s and %s%s are both set; unset one of them", name, name, SecretSuffix)
	}
	if value, err = ReadSecret(path); err != nil {
		return "", "", fmt.Errorf("%s%s: %w", name, SecretSuffix, err)
	}
	return value, path, nil
}
