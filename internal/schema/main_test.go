package schema

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// childVariable has the DSN of a test binary that is started as a process which takes a turn.
const childVariable = "UNSTALE_TEST_TURN"

// testLease is the lease of such processes.
const testLease = 3 * time.Second

func TestMain(m *testing.M) {
	leaseTime = testLease
	if dsn := os.Getenv(childVariable); dsn != "" {
		if err := child(dsn); err != nil {
			fmt.Println("ended:", err)
			os.Exit(1)
		}
		fmt.Println("ended")
		os.Exit(0)
	}
	testenv.Main(m)
}

// child takes the turn and runs each line of its input as a step. It prints what happens.
func child(dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	say := func(notice string) { fmt.Println("notice:", notice) }
	return InTurn(ctx, db, "migrate", say, func(turn *Turn) error {
		fmt.Println("turn")
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("stepped") {
			err := turn.Patiently(ctx, func(error) string { return "the step" }, func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, lines.Text())
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
