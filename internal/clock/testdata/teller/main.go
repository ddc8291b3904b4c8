// Command teller tells what time it is, and that it has not run for long, for each line of its input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/unstale/unstale/internal/clock"
)

func main() {
	if err := clock.Follow(); err != nil {
		fmt.Println(err)
		return
	}
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().Unix(), time.Since(began) < 30*time.Minute)
	}
}
