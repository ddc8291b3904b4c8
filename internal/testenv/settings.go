package testenv

import (
	"fmt"

	"github.com/unstale/unstale/internal/servers"
)

// The environment variables that tests read.
const (
	sourceVariable     = "UNSTALE_TEST_SERVERS"
	flavorVariable     = "UNSTALE_TEST_DB"
	mysqlVariable      = "UNSTALE_TEST_MYSQL_DSN"
	redisVariable      = "UNSTALE_TEST_REDIS_URL"
	mysqlImageVariable = "UNSTALE_TEST_MYSQL_IMAGE"
	redisImageVariable = "UNSTALE_TEST_REDIS_IMAGE"
)

// A source provides test servers.
type source string

const (
	fromEnv    source = "env"
	fromDocker source = "docker"
	fromLocal  source = "local"
)

// settings are the environment variables, checked.
type settings struct {
	only       source       // empty: any
	flavor     servers.Kind // empty: MySQL
	mysqlDSN   string
	redisURL   string
	mysqlImage string
	redisImage string
}

func readSettings(getenv func(string) string) (settings, error) {
	s := settings{
		only:       source(getenv(sourceVariable)),
		flavor:     servers.Kind(getenv(flavorVariable)),
		mysqlDSN:   getenv(mysqlVariable),
		redisURL:   getenv(redisVariable),
		mysqlImage: getenv(mysqlImageVariable),
		redisImage: getenv(redisImageVariable),
	}
	switch s.only {
	case "", fromEnv, fromDocker, fromLocal:
	default:
		return s, fmt.Errorf("%s is %q, want env, docker, local or nothing", sourceVariable, string(s.only))
	}
	switch s.flavor {
	case "", servers.KindMySQL, servers.KindMariaDB:
	default:
		return s, fmt.Errorf("%s is %q, want mysql, mariadb or nothing", flavorVariable, string(s.flavor))
	}
	if s.mysqlImage == "" {
		s.mysqlImage = "mysql:8.4"
		if s.flavor == servers.KindMariaDB {
			s.mysqlImage = "mariadb:10.11"
		}
	}
	if s.redisImage == "" {
		s.redisImage = "redis:8"
	}
	return s, nil
}

// sources returns the sources to try, in order. given is the value of variable, which names a
// running server.
func (s settings) sources(variable, given string) ([]source, error) {
	switch {
	case s.only == fromEnv && given == "":
		return nil, fmt.Errorf("%s is env, but %s is not set", sourceVariable, variable)
	case s.only != "":
		return []source{s.only}, nil
	case given != "":
		return []source{fromEnv}, nil
	}
	return []source{fromDocker, fromLocal}, nil
}
