package store

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

// driver is MySQL as the pools use it.
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
	// What rows look like, and what statements mean, is for this package to say.
	cfg.Params = nil
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ColumnsWithAlias = false
	cfg.ClientFoundRows = false
	cfg.InterpolateParams = true // one round trip a statement; safe with utf8mb4
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.CheckConnLiveness = true
	cfg.MaxAllowedPacket = 0        // ask the server, so that what it would not take is an error and not a lost connection
	cfg.Logger = &mysql.NopLogger{} // errors are returned; the loop logs them once
	cfg.Timeout = cmp.Or(cfg.Timeout, c.StatementTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, c.StatementTimeout)
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_general_ci"), mysql.TimeTruncate(0))
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseDSN parses a go-sql-driver data source name. The driver's errors quote what it takes for an address, which in a
// DSN of another shape may be the password, so they are not passed on; those about parameters quote only them.
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

// refuseVariables refuses what the driver would SET, unless every session pins a value of its own, which overrides it:
// a DSN that applications share may well have a time_zone.
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
