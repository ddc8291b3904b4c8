package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	tcmysql "github.com/testcontainers/testcontainers-go/modules/mysql"
	tcredis "github.com/testcontainers/testcontainers-go/modules/redis"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.uber.org/goleak"
)

const (
	// ryukVariable switches off the container that removes what a killed process left behind.
	ryukVariable = "TESTCONTAINERS_RYUK_DISABLED"
	// prefixVariable goes before image names that testcontainers fetches.
	prefixVariable = "TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX"

	containerStart = 90 * time.Second
	containerStop  = 30 * time.Second
	rootPassword   = "unstale"
)

// dockerUsed says that containers were started in this process.
var dockerUsed atomic.Bool

// engine looks for Docker once per process and prepares testcontainers, which reads its settings once, for it.
var engine = sync.OnceValues(func() (*dockerEngine, error) {
	e, err := findEngine(context.Background())
	if err != nil {
		return nil, err
	}
	shared.add(e.client.Close)
	log.SetDefault(log.NewNoopLogger())
	if os.Getenv("DOCKER_HOST") == "" {
		err = os.Setenv("DOCKER_HOST", e.host)
	}
	return e, err
})

// readyEngine returns the engine when it has the image, and settles whether Ryuk can be used. The image comes first:
// without it nothing else matters.
func readyEngine(ctx context.Context, image string) error {
	e, err := engine()
	if err != nil {
		return err
	}
	if err := e.image(ctx, prefixed(image), run.say); err != nil {
		return err
	}
	withoutRyuk.Do(func() {
		if os.Getenv(ryukVariable) != "" {
			return
		}
		//lint:ignore SA1019 nothing else tells which image this version uses
		if err := e.image(ctx, prefixed(testcontainers.ReaperDefaultImage), run.say); err != nil {
			run.say("no Ryuk (%v): containers go at the end of the tests, not when these are killed", err)
			_ = os.Setenv(ryukVariable, "true")
		}
	})
	dockerUsed.Store(true)
	return nil
}

var withoutRyuk sync.Once

func prefixed(image string) string {
	prefix := os.Getenv(prefixVariable)
	if prefix == "" {
		return image
	}
	return prefix + "/" + image
}

// dockerMySQL starts a container of a MySQL or MariaDB image and returns its DSN.
func dockerMySQL(ctx context.Context, image string) (string, error) {
	if err := readyEngine(ctx, image); err != nil {
		return "", err
	}
	c, err := tcmysql.Run(ctx, image,
		tcmysql.WithUsername("root"),
		tcmysql.WithPassword(rootPassword),
		testcontainers.WithCmdArgs("--max-connections=1000"),
		// The module waits for a line that only MySQL's own image prints. This is the part that MariaDB's has too;
		// while the image prepares its data, the port is 0.
		testcontainers.WithWaitStrategyAndDeadline(containerStart,
			wait.ForLog("port: 3306 "), wait.ForListeningPort("3306/tcp")),
	)
	if err := keep(c, c == nil, err); err != nil {
		return "", fmt.Errorf("run %s: %w", image, err)
	}
	address, err := c.PortEndpoint(ctx, "3306/tcp", "")
	if err != nil {
		return "", fmt.Errorf("find the port of %s: %w", image, err)
	}
	return "root:" + rootPassword + "@tcp(" + address + ")/", nil
}

// dockerRedis starts a container of a Redis image and returns its URL. It has more databases than a server of its own
// accord: each test takes one.
func dockerRedis(ctx context.Context, image string) (string, error) {
	if err := readyEngine(ctx, image); err != nil {
		return "", err
	}
	c, err := tcredis.Run(ctx, image, testcontainers.WithCmdArgs("--databases", "256"))
	if err := keep(c, c == nil, err); err != nil {
		return "", fmt.Errorf("run %s: %w", image, err)
	}
	url, err := c.ConnectionString(ctx)
	if err != nil {
		return "", fmt.Errorf("find the port of %s: %w", image, err)
	}
	return url, nil
}

// keep has a started container removed at the end of the tests, and one that did not start properly at once.
func keep(c testcontainers.Container, missing bool, err error) error {
	if missing {
		return err
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), containerStop)
		defer cancel()
		if err := c.Terminate(ctx, testcontainers.StopTimeout(time.Second)); err != nil {
			return fmt.Errorf("remove container %s: %w", c.GetContainerID(), err)
		}
		return nil
	}
	if err != nil {
		return errors.Join(err, remove())
	}
	shared.add(remove)
	return nil
}

// dockerLeaks are goroutines that testcontainers leaves behind: its connection to Ryuk, which must last until the
// process ends, and idle connections of its clients to the engine.
func dockerLeaks() []goleak.Option {
	if !dockerUsed.Load() {
		return nil
	}
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	}
}
