// Package credentials reads secrets from files, such as those that an orchestrator mounts, configures
// TLS from PEM files, and names the fix for a certificate that the client or the server refuses.
//
// PEM files are read for each new connection, so a certificate can change while a program runs.
// Errors about a secret name its file and never quote its content.
package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
