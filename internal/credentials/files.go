package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

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
