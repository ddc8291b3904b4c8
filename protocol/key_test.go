package protocol

import "testing"

func TestLeaseKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, want string
		ok        bool
	}{
		{"zahraah:prod:product:1", "lock:fill:{zahraah:prod:product:1}", true},
		{"user:{1000}:cart", "lock:fill:user:{1000}:cart", true},
		{"{a}:b", "lock:fill:{a}:b", true},
		{"a{b}{c}", "lock:fill:a{b}{c}", true},
		{"a{{b}}", "lock:fill:a{{b}}", true}, // the tag is "{b"
		{"{a}{b}", "lock:fill:{a}{b}", true},
		{"lock:fill:x", "lock:fill:{lock:fill:x}", true},
		{"منتج:1", "lock:fill:{منتج:1}", true},
		{"a b\n\"", "lock:fill:{a b\n\"}", true},
		{"", "", false},
		{"a{}b", "", false},
		{"{}{a}", "", false}, // Redis looks at the first { only
		{"a}b", "", false},
		{"a{b", "", false},
		{"}a{", "", false},
		{"a}{b}", "lock:fill:a}{b}", true},
		{"{abc}", "", false}, // would be the lease key of abc
	} {
		got, ok := LeaseKey(c.key)
		if got != c.want || ok != c.ok {
			t.Errorf("LeaseKey(%q) = %q, %v, want %q, %v", c.key, got, ok, c.want, c.ok)
		}
		if !ok {
			continue
		}
		if back, ok := InnerKey(got); !ok || back != c.key {
			t.Errorf("InnerKey(%q) = %q, %v, want %q", got, back, ok, c.key)
		}
	}
}

func TestInnerKeyRefuses(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"", "lock:fill:", "lock:fill:a", "lock:fill:{}", "lock:fill:a{}b", "{a}", "lock:{a}", "lock:fill:a{b"} {
		if key, ok := InnerKey(lease); ok {
			t.Errorf("InnerKey(%q) = %q, want none", lease, key)
		}
	}
}

// No two keys share a lease key, and InnerKey inverts LeaseKey: sweeps rely on both.
func FuzzLeaseKey(f *testing.F) {
	for _, s := range []string{"a", "{a}", "x{a}y", "{}", "a}", "{a}{b}", "{{a}}", "lock:fill:{a}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if lease, ok := LeaseKey(s); ok {
			if back, ok := InnerKey(lease); !ok || back != s {
				t.Errorf("InnerKey(LeaseKey(%q)) = %q, %v", s, back, ok)
			}
		}
		if key, ok := InnerKey(s); ok {
			if back, ok := LeaseKey(key); !ok || back != s {
				t.Errorf("LeaseKey(InnerKey(%q)) = %q, %v", s, back, ok)
			}
		}
	})
}

func TestStampKey(t *testing.T) {
	t.Parallel()
	if got := StampKey("product:1"); got != "stamp:product:1" {
		t.Errorf("StampKey: %q", got)
	}
}
