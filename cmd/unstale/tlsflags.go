package main

import (
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/credentials"
)

// addTLS adds the flags for certificates of the connections to a server, mysql or redis.
func addTLS(flags *pflag.FlagSet, f *credentials.TLSFiles, server string) {
	flags.StringVar(&f.CA, server+"-tls-ca-file", "", "file of the authorities that may sign the server's certificate; turns TLS on")
	flags.StringVar(&f.Cert, server+"-tls-cert-file", "", "file of the client's certificate; turns TLS on")
	flags.StringVar(&f.Key, server+"-tls-key-file", "", "file of the client's key")
	flags.StringVar(&f.ServerName, server+"-tls-server-name", "", "name that the server's certificate must have, if not the host's; turns TLS on")
}
