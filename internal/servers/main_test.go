package servers_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/unstale/unstale/internal/servers"
)

// parentVariable makes the test binary act as a parent that tests kill.
const parentVariable = "UNSTALE_SERVERS_TEST_PARENT"

func TestMain(m *testing.M) {
	if role := os.Getenv(parentVariable); role != "" {
		beParent(role)
	}
	goleak.VerifyTestMain(m)
}

// beParent starts servers, prints their process IDs and waits to be killed. In the role "template"
// it starts a database and ends.
func beParent(role string) {
	ctx := context.Background()
	m, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: flavor()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if role == "template" {
		_ = m.Close()
		os.Exit(0)
	}
	r, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(m.Pid(), r.Pid())
	select {}
}

// flavor returns the database that this test run uses.
func flavor() servers.Kind { return servers.Kind(os.Getenv("UNSTALE_TEST_DB")) }
