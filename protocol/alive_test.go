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
