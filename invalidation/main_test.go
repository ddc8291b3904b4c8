package invalidation_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the wanted part of the files under testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
