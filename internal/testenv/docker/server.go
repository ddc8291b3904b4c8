package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tcmysql "github.com/testcontainers/testcontainers-go/modules/mysql"
	tcredis "github.com/testcontainers/testcontainers-go/modules/redis"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	containerStart = 90 * time.Second
	containerStop  = 30 * time.Second
	portLimit      = 3 * time.Second // of the wait for a published port
	rootPassword   = "unstale"
	hostVariable   = "TESTCONTAINERS_HOST_OVERRIDE"
)

// startMySQL starts a container of a MySQL or MariaDB image and returns its DSN.
func startMySQL(ctx context.Context, image string) (string, func() error, error) {
	c, err := tcmysql.Run(ctx, image,
		tcmysql.WithUsername("root"),
		tcmysql.WithPassword(rootPassword),
		testcontainers.WithCmdArgs("--max-connections=1000"),
		// The module waits for a line that only MySQL's own image prints. This is the part that
		// MariaDB's image prints too. While the image prepares its data, the port is 0.
		testcontainers.WithWaitStrategyAndDeadline(containerStart, wait.ForLog("port: 3306 ")),
	)
	return started(ctx, image, c, c == nil, err, "3306/tcp", func(address string) string { return "root:" + rootPassword + "@tcp(" + address + ")/" })
}

// startRedis starts a container of a Redis image and returns its URL. The server has more databases
// than the default: each test takes one.
func startRedis(ctx context.Context, image string) (string, func() error, error) {
	c, err := tcredis.Run(ctx, image, testcontainers.WithCmdArgs("--databases", "256"),
		testcontainers.WithWaitStrategyAndDeadline(containerStart, wait.ForLog("* Ready to accept connections")))
	return started(ctx, image, c, c == nil, err, "6379/tcp", func(address string) string { return "redis://" + address })
}

// started returns the address of a container and a function that removes it. A container that did
// not start properly is removed immediately.
func started(ctx context.Context, image string, c testcontainers.Container, missing bool, err error, port string, write func(address string) string) (string, func() error, error) {
	if missing {
		return "", nil, fmt.Errorf("run %s: %w", image, err)
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), containerStop)
		defer cancel()
		if err := c.Terminate(ctx, testcontainers.StopTimeout(time.Second)); err != nil {
			return fmt.Errorf("remove container %s: %w", c.GetContainerID(), err)
		}
		return nil
	}
	address := ""
	if err == nil {
		address, err = reach(ctx, c, port)
	}
	if err != nil {
		return "", nil, fmt.Errorf("run %s: %w", image, errors.Join(err, remove()))
	}
	return write(address), remove, nil
}

// reach returns the address of a port of a container: the engine's address that testcontainers
// finds, or this host's address. Inside a container testcontainers uses the default gateway, where
// nothing answers if the engine runs in the same container.
func reach(ctx context.Context, c testcontainers.Container, port string) (string, error) {
	address, err := c.PortEndpoint(ctx, port, "")
	if err != nil {
		return "", fmt.Errorf("find the published port: %w", err)
	}
	_, published, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("find the published port: %w", err)
	}
	return firstThatAnswers(ctx, address, net.JoinHostPort("127.0.0.1", published))
}

func firstThatAnswers(ctx context.Context, address, here string) (string, error) {
	var err error
	for _, candidate := range []string{address, here} {
		if err = dial(ctx, candidate); err == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("nothing answers at %s nor at %s: %w; set %s to the address of the Docker engine's host", address, here, err, hostVariable)
}

func dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, portLimit)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}
