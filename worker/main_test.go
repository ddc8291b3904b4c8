package worker_test

import (
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/keyspace"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}
