package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	// ryukVariable switches off the container that cleans up after a killed process. This process
	// removes its container when its parent process is killed.
	ryukVariable = "TESTCONTAINERS_RYUK_DISABLED"
	// prefixVariable is a prefix of image names that testcontainers fetches.
	prefixVariable = "TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX"

	engineLimit = 10 * time.Second // of the search for an engine
	pullLimit   = 3 * time.Minute  // of one image
)

// prepare lets testcontainers find a Docker engine, and makes sure that the engine has an image.
func prepare(ctx context.Context, image string) error {
	log.SetDefault(log.NewNoopLogger())
	if err := os.Setenv(ryukVariable, "true"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(limited)
	if err != nil {
		return fmt.Errorf("no Docker engine: %s; set DOCKER_HOST if one runs elsewhere", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	defer func() { _ = c.Close() }()
	return fetch(ctx, c.Client, prefixed(image))
}

// fetch makes sure that the engine has an image. It reports when it must fetch one, which takes
// some time.
func fetch(ctx context.Context, c *client.Client, image string) error {
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	if _, err := c.ImageInspect(ctx, image); err == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "Docker fetches", image)
	pull, err := c.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("fetch image %s: %w", image, err)
	}
	return nil
}

func prefixed(image string) string {
	prefix := os.Getenv(prefixVariable)
	if prefix == "" {
		return image
	}
	return prefix + "/" + image
}
