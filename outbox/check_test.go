package outbox_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/outbox"
)

// A check asks until the token is settled. The database's clock decides how long the token counts.
func TestCheck(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(1)...)
	check := outbox.NewCheck(env.DB, token)
	expect := func(what string, check *outbox.Check, settled, counts bool, dead error) {
		t.Helper()
		got, left, err := check.Settled(t.Context())
		if got != settled || left > 0 != counts || left > outbox.TokenLifetime || !errors.Is(err, dead) {
			t.Errorf("%s: settled %t for %v, %v", what, got, left, err)
		}
	}
	expect("a row waits", check, false, true, nil)
	exec(t, env.DB, "DELETE FROM cache_outbox")
	expect("it is gone", check, true, true, nil)
	exec(t, env.DB, "INSERT INTO cache_outbox (id, entity, entity_id) VALUES (1, 'product', '1')")
	expect("settled once", check, true, true, nil)
	expect("another check", outbox.NewCheck(env.DB, token), false, true, nil)

	exec(t, env.DB, toDead, 1)
	dead := outbox.NewCheck(env.DB, token)
	expect("dead", dead, false, true, outbox.ErrDead)
	exec(t, env.DB, "DELETE FROM cache_outbox_dead")
	expect("dead once", dead, false, true, outbox.ErrDead)

	source := strings.Split(token.String(), ".")[1]
	for rows, dead := range map[string]error{"1": nil, "~": outbox.ErrTooManyRows} {
		for age, counts := range map[time.Duration]bool{0: true, outbox.TokenLifetime + time.Minute: false, -time.Hour: true} {
			text := fmt.Sprintf("1.%s.%s.%s", source, strconv.FormatInt(time.Now().Add(-age).Unix(), 36), rows)
			parsed, err := outbox.ParseToken(text)
			if err != nil {
				t.Fatal(err)
			}
			wanted := dead
			if !counts {
				wanted = nil
			}
			expect(fmt.Sprintf("%s, %v old", rows, age), outbox.NewCheck(env.DB, parsed), !counts, counts, wanted)
		}
	}
	expect("a zero token", outbox.NewCheck(env.DB, outbox.Token{}), true, false, nil)
}
