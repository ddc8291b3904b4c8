// Command docker starts a server for tests in a container, by testcontainers. It is a separate
// module: programs that import unstale do not download a Docker client.
//
//	docker mysql IMAGE
//	docker redis IMAGE
//	docker fetch IMAGE
//
// It prints the address of the server, and removes the container when its standard input ends, as
// it does when the parent process is killed. With fetch it only makes sure that an engine has the
// image. Progress lines go to standard error.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) != 3 || starters[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: docker mysql|redis|fetch IMAGE")
		os.Exit(2)
	}
	if err := serve(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// starters start a server, and return its address and a function that removes it.
var starters = map[string]func(context.Context, string) (string, func() error, error){
	"mysql": startMySQL,
	"redis": startRedis,
	"fetch": func(context.Context, string) (string, func() error, error) {
		return "", func() error { return nil }, nil
	},
}

func serve(ctx context.Context, kind, image string) error {
	if err := prepare(ctx, image); err != nil {
		return err
	}
	address, remove, err := starters[kind](ctx, image)
	if err != nil {
		return err
	}
	fmt.Println(address)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
	return remove()
}
