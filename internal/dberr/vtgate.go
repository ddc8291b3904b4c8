package dberr

import (
	"errors"
	"strings"
)

// ErrVTGate is VTGate of Vitess, where a shard is needed.
var ErrVTGate = errors.New("the server is VTGate of Vitess, which keeps settings and variables of a session to itself and has no CREATE TRIGGER; " +
	"connect to the MySQL of the shard's primary, with a DSN such as user:password@tcp(host:3306)/vt_keyspace: docs/topologies.md#vitess")

// BannerSQL selects the banner for IsVTGate. VTGate fills in both variables itself, in any query.
// Contract: no lock, no table.
const BannerSQL = "SELECT CONCAT(@@version, ' ', @@version_comment)"

// IsVTGate reports whether a banner, the version and the version comment of a server, is VTGate's.
// Its version can be set; its comment is "Version: 24.0.4 (Git revision ...".
func IsVTGate(banner string) bool {
	return strings.Contains(banner, "-Vitess") || strings.Contains(banner, " (Git revision ")
}
