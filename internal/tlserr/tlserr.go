// Package tlserr says what to do about a server whose certificate is refused.
package tlserr

import (
	"crypto/tls"
	"errors"
	"fmt"
)

const cure = "trust the authority that has signed the server's certificate: name it in RootCAs of the client's tls.Config or in SSL_CERT_FILE, or add it to the system's"

// Cure returns what to do about an error, or "" if no certificate was refused.
func Cure(err error) string {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return cure
	}
	return ""
}

// WithCure adds the cure to an error, if there is one.
func WithCure(err error) error {
	if cure := Cure(err); cure != "" {
		return fmt.Errorf("%w; %s", err, cure)
	}
	return err
}
