package session

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const wantedDSN = "wanted user:password@tcp(host:3306)/database"

// driver returns the MySQL configuration of the pools.
func (c Config) driver() (*mysql.Config, error) {
	switch {
	case c.MySQL == nil:
		return nil, errors.New("no mysql is given")
	case c.MySQL.DBName == "":
		return nil, fmt.Errorf("mysql dsn: names no database; %s", wantedDSN)
	}
	if err := refuseVariables(c.MySQL.Params); err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	cfg := c.MySQL.Clone()
	// This package decides how rows are read and what statements mean.
	cfg.Params = nil
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ColumnsWithAlias = false
	cfg.ClientFoundRows = false
	cfg.InterpolateParams = true // one round trip a statement; safe with utf8mb4
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.CheckConnLiveness = true
	// Ask the server, so that an oversized packet is an error and not a lost connection.
	cfg.MaxAllowedPacket = 0
	cfg.Logger = &mysql.NopLogger{} // errors are returned; the loop logs them once
	cfg.Timeout = cmp.Or(cfg.Timeout, c.StatementTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, c.StatementTimeout)
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_general_ci"), mysql.TimeTruncate(0))
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseDSN parses a go-sql-driver data source name. The driver's errors quote the part that it
// parses as the address, which in a malformed DSN may be the password, so ParseDSN does not return
// them. It does return errors about parameters, which quote only those.
func ParseDSN(dsn string) (*mysql.Config, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	return cfg, nil
}

func parseDSN(dsn string) (*mysql.Config, error) {
	if s := scheme.FindString(dsn); s != "" {
		return nil, fmt.Errorf("a URL (%s...) is not understood; %s", s, wantedDSN)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		address, _, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
		_, bare := mysql.ParseDSN(dsn[:strings.LastIndexByte(dsn, '/')+1] + address)
		if bare == nil || strings.HasPrefix(err.Error(), "invalid DSN: ") {
			return nil, fmt.Errorf("%w; %s", err, wantedDSN)
		}
		return nil, fmt.Errorf("cannot be read; %s", wantedDSN)
	}
	return cfg, nil
}

// refuseVariables refuses system variables, which the driver would SET, unless every session pins
// its own value and so overrides them: applications may share a DSN that has a time_zone.
func refuseVariables(params map[string]string) error {
	var pins []string
	mysql, mariaDB := session{}.byServer()
	for _, p := range slices.Concat(session{}.common(), mysql, mariaDB) {
		pins = append(pins, p.name)
	}
	var refused []string
	for name := range params {
		if !slices.Contains(pins, strings.ToLower(name)) {
			refused = append(refused, name)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	slices.Sort(refused)
	return fmt.Errorf("%s: neither a parameter of go-sql-driver nor a system variable that sessions pin; remove it, or set it on the server",
		strings.Join(refused, ", "))
}
