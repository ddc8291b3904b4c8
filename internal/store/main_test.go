package store_test

import (
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
