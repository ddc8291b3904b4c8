package worker_test

import (
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}
