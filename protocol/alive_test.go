package protocol

import "testing"

func TestAlive(t *testing.T) {
	t.Parallel()
	if got, want := AliveKey(""), "unstale:alive"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := AliveKey("7"), "unstale:alive{7}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a := Alive{Time: 1772366400000001, Epoch: "7QX2", Lease: 10_000, Map: "0123456789ab"}
	want := `{"t":1772366400000001,"epoch":"7QX2","lease":10000,"map":"0123456789ab"}`
	if got := a.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if back, err := ParseAlive(want[:len(want)-1] + `,"later":[1]}`); err != nil || back != a {
		t.Errorf("%+v, %v", back, err)
	}
	for _, text := range []string{"", "x", "{}", `{"t":-1}`, `{"t":"1"}`} {
		if a, err := ParseAlive(text); err == nil {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

// The shorter lease of another worker counts for AliveLife after that worker wrote it, even if
// others write it again.
func TestAliveShorterLease(t *testing.T) {
	const now = 1772366400000000
	mine := Alive{Time: now, Lease: 10_000, Map: "b"}
	for name, c := range map[string]struct {
		before Alive
		want   int64 // LeaseTime; zero: its own lease
	}{
		"shorter":              {Alive{Time: now - 1, Lease: 5000}, now - 1},
		"shorter, passed on":   {Alive{Time: now - 1, Lease: 5000, LeaseTime: now - AliveLife + 1}, now - AliveLife + 1},
		"shorter, too old":     {Alive{Time: now - AliveLife, Lease: 5000}, 0},
		"passed on, too old":   {Alive{Time: now - 1, Lease: 5000, LeaseTime: now - AliveLife}, 0},
		"the clock was reset":  {Alive{Time: now + 1, Lease: 5000}, 0},
		"longer":               {Alive{Time: now - 1, Lease: 20_000}, 0},
		"the same":             {Alive{Time: now - 1, Lease: 10_000}, 0},
		"a version without it": {Alive{Time: now - 1}, 0},
	} {
		want := mine
		if c.want != 0 {
			want.Lease, want.LeaseTime = c.before.Lease, c.want
		}
		if got := mine.WithShorterLease(c.before); got != want {
			t.Errorf("%s: %+v, wanted %+v", name, got, want)
		}
	}
}
