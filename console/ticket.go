package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ticketLasts is how long a person may look at what an action will do.
const ticketLasts = 15 * time.Minute

// A ticket is the confirmation of an action: a form whose token is bound to the action, its
// arguments, what was shown, and the person that a proxy names. It can be used once: in a process,
// the ID of its run leads to its result; elsewhere, store.Once refuses it.
type ticket struct {
	args  url.Values
	nonce string
	seen  string
	ends  int64
}

// ticketKey returns the key of tokens: that of all processes with the same secret, or own, which is
// of this process.
func (s *signer) ticketKey(own []byte) []byte {
	if secret := s.token() + s.cfg.ProxySecret; secret != "" {
		return []byte(secret)
	}
	return own
}

// sign returns the signature of a ticket.
func (c *actor) sign(r *http.Request, action, packed string, t *ticket) string {
	mac := hmac.New(sha256.New, c.signer.ticketKey(c.key))
	for _, part := range []string{"console action", action, packed, t.nonce, t.seen, strconv.FormatInt(t.ends, 10), c.cfg.user(r)} {
		_, _ = mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// newTicket returns the arguments and the token for a form. Base64 keeps arguments byte for byte:
// browsers change line breaks.
func (c *actor) newTicket(r *http.Request, action string, it *intent) (packed, token string) {
	t := &ticket{nonce: rand.Text(), seen: digest(it.seen), ends: time.Now().Add(ticketLasts).Unix()}
	packed = base64.StdEncoding.EncodeToString([]byte(it.args.Encode()))
	return packed, strings.Join([]string{strconv.FormatInt(t.ends, 10), t.nonce, t.seen, c.sign(r, action, packed, t)}, ".")
}

// ticketOf returns the ticket of a form, or nil if this page has not made it.
func (c *actor) ticketOf(r *http.Request, action string) *ticket {
	parts := strings.Split(r.PostForm.Get("token"), ".")
	if len(parts) != 4 {
		return nil
	}
	t, packed := &ticket{nonce: parts[1], seen: parts[2]}, r.PostForm.Get("args")
	var err error
	if t.ends, err = strconv.ParseInt(parts[0], 10, 64); err != nil || !same(parts[3], c.sign(r, action, packed, t)) {
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(packed)
	if err == nil {
		t.args, err = url.ParseQuery(string(text))
	}
	if err != nil {
		return nil
	}
	return t
}

// problem returns why a ticket does not confirm what the action would do now, or "".
func (t *ticket) problem(now *intent) string {
	switch {
	case t.ends < time.Now().Unix():
		return "Nothing was done: this page was open for too long. Check it, and confirm it again."
	case t.seen != digest(now.seen):
		return "Nothing was done: this has changed since the page showed it. Check what it would do now, and confirm it again."
	case now.Block != "" || now.Says == "":
		return "Nothing was done."
	}
	return ""
}

// digest returns a short text that differs for different data.
func digest(seen any) string {
	text, _ := json.Marshal(seen) // of plain data
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
