// Command which prints the servers that the tests will use: go test hides what passing packages
// print.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/unstale/unstale/internal/testenv"
)

func main() {
	servers, err := testenv.Which(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "test servers:", err)
		os.Exit(1)
	}
	fmt.Println("test servers:", servers)
}
