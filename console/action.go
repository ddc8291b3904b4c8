package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// An actor serves the actions of a Console. Safe for concurrent use.
type actor struct {
	cfg    Config
	db     *session.Sessions
	redis  *keyspace.Keyspace
	base   context.Context
	write  func(w http.ResponseWriter, r *http.Request, status int, name string, data any)
	rights *source // see readRights
	runs   runs
	signer *signer
	key    []byte // of tickets, without a secret
	done   func() // called after each action
}

// An action is an order that an operator can give on the page.
type action struct {
	Name, Title string
	Does        string // what it does, and when to use it
	may         string // the privileges that it needs
	// look reads what the action would do with the input of a form. It changes nothing.
	look func(c *actor, ctx context.Context, in url.Values) (*intent, error)
}

var actions = []action{
	{"retry", "Retry dead letters", "Puts dead letters back as they are, due immediately. If the current map still refuses a row, it dies again: remove the cause first.", store.MayDead, retrying.preview},
	{"discard", "Discard dead letters", "Deletes dead letters for good. Their keys are not unlinked, so they may stay stale until they expire. Letters of the last 5 minutes stay, because write tokens may name their rows.", store.MayDead, discarding.preview},
	{"correct", "Correct dead letters", "Puts dead letters back with another entity or other parameters, due immediately. Letters that the running map refuses as corrected stay.", store.MayDead, correcting.preview},
	{"pause", "Pause all workers", "Makes all workers stop claiming rows and sweeping for a time. Rows wait, and their keys stay stale. Nothing is lost.", store.MayPause, (*actor).lookPause},
	{"resume", "Resume all workers", "Ends the pause of all workers, which then process the rows that wait.", store.MayPause, (*actor).lookResume},
	{"replay", "Replay the journal", "Unlinks and publishes again what workers unlinked in a time, for example after someone restored old data in Redis. Readers then load these values again.", store.MayReplay, (*actor).lookReplay},
}

// An intent describes what an action would do. A person sees it before confirming it.
type intent struct {
	Fields  []field // what a person may enter
	Says    string  // what it will do; "": it needs input
	Button  string
	Letters []expandedLetter // the first Shown of Total, with a correction before and after it
	Shown   int
	Total   int
	Notes   []string
	Block   string // why it cannot be done, and the fix
	Find    string // the address of a search for the result, or ""

	args url.Values // input that leads to the same intent
	seen any        // what must be unchanged when it is confirmed
	do   func(ctx context.Context, acts *store.Actions, who string, progress func(string)) (result string, err error)
}

// A field is an input of an action.
type field struct {
	Name, Label, Value, Hint string
	Area, Check              bool
	Options                  []string
}

// An actionPage is the data of the page of an action.
type actionPage struct {
	*intent
	Action        action
	Problem       string // why nothing was done
	Packed, Token string // of the confirmation; "": it cannot be confirmed
	Named         bool   // a proxy has sent the person's name
	Who, Account  string
}

const (
	lookLimit   = 8 * time.Second // of an action's look
	longestForm = 4 << 20         // bytes; parameters may be long
	longestName = 200             // bytes of a person's name
	orderID     = 12              // characters of a ticket's nonce
	nameCookie  = "unstale_name"
)

var (
	errChanged  = errors.New("nothing was done: this has changed since the page showed it")
	errRepeated = errors.New("nothing was done here: this confirmation was used before; the panel of operators' actions lists what was done")
)

// act serves the page of an action. Only a POST that confirms what
// the page has shown does something.
func (c *actor) act(w http.ResponseWriter, r *http.Request) {
	page := actionPage{intent: &intent{}}
	for _, a := range actions {
		if a.Name == r.PathValue("action") {
			page.Action = a
		}
	}
	switch {
	case page.Action.look == nil:
		c.fail(w, r, http.StatusNotFound, "there is no action "+r.PathValue("action"))
		return
	case !c.cfg.Actions:
		c.fail(w, r, http.StatusForbidden, "actions are off: start the worker with --console-actions")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		c.fail(w, r, http.StatusBadRequest, "this form cannot be read: "+err.Error())
		return
	}
	in, t, status := r.Form, (*ticket)(nil), http.StatusOK
	if r.Method == http.MethodPost {
		in = r.PostForm
		if !in.Has("preview") {
			if t = c.ticketOf(r, page.Action.Name); t == nil {
				c.fail(w, r, http.StatusForbidden, "nothing was done: this confirmation is not one that the page has shown; open the action again")
				return
			}
			if c.runs.get(t.nonce) != nil { // confirmed twice
				http.Redirect(w, r, c.cfg.Prefix+"/run/"+t.nonce, http.StatusSeeOther)
				return
			}
			in = t.args
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookLimit)
	defer cancel()
	if page.Block = c.whyNot(ctx, page.Action.may); page.Block != "" {
		status = http.StatusForbidden
	} else if found, err := page.Action.look(c, ctx, in); err != nil {
		page.Block, status = reason(err), http.StatusServiceUnavailable
	} else if page.intent = found; t != nil && c.person(r) == "" {
		page.Problem, status = "nothing was done: enter your name, for the audit", http.StatusBadRequest
	} else if t != nil {
		if page.Problem = t.problem(found); page.Problem == "" {
			c.confirm(w, r, page, t.nonce)
			return
		}
		status = http.StatusConflict
	}
	if page.Says != "" && page.Block == "" {
		page.Packed, page.Token = c.newTicket(r, page.Action.Name, page.intent)
	}
	page.Who, page.Named = c.cfg.user(r), c.cfg.UserHeader != ""
	if name, err := r.Cookie(nameCookie); err == nil && !page.Named {
		page.Who, _ = url.QueryUnescape(name.Value)
	}
	if c.cfg.MySQL != nil {
		page.Account = c.cfg.MySQL.User
	}
	c.write(w, r, status, "action", page)
}

// fail serves an error page.
func (c *actor) fail(w http.ResponseWriter, r *http.Request, status int, text string) {
	c.write(w, r, status, "error", failure{status, text})
}

// confirm begins a confirmed action and redirects to its page, which shows the result. A repeated
// confirmation leads to the same page.
func (c *actor) confirm(w http.ResponseWriter, r *http.Request, page actionPage, id string) {
	name := c.person(r)
	if c.cfg.UserHeader == "" {
		http.SetCookie(w, &http.Cookie{Name: nameCookie, Value: url.QueryEscape(name), Path: c.cfg.Prefix + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	it, who := page.intent, name+" (console)"
	began := c.runs.start(c.base, id, &run{Action: page.Action, Says: it.Says, Find: it.Find}, func(ctx context.Context, progress func(string)) (string, error) {
		defer c.done()
		result, err := "", store.Once(ctx, c.db, who, id[:orderID])
		if err == nil {
			result, err = it.do(ctx, store.NewActions(c.db).As(who), who, progress)
		}
		switch {
		case errors.Is(err, store.ErrRepeated):
			err = errRepeated
		case errors.Is(err, store.ErrPauseChanged), errors.Is(err, store.ErrLetterChanged):
			err = errChanged
		}
		return result, err
	})
	if began == nil {
		c.fail(w, r, http.StatusServiceUnavailable, "nothing was done: the console is stopping")
		return
	}
	select {
	case <-began.ended:
	case <-time.After(shortRun):
	}
	http.Redirect(w, r, c.cfg.Prefix+"/run/"+id, http.StatusSeeOther)
}

// person returns the name of the person who confirms an action, or "".
func (c *actor) person(r *http.Request) string {
	name := r.PostForm.Get("name")
	if c.cfg.UserHeader != "" {
		name = c.cfg.user(r)
	}
	name = strings.TrimSpace(strings.ToValidUTF8(name, ""))
	return strings.ToValidUTF8(name[:min(len(name), longestName)], "")
}

// readRights reads which privileges for actions the account lacks: by kind, with the fix.
func (c *actor) readRights(ctx context.Context) (any, error) {
	missing := map[string]string{}
	for _, kind := range []string{store.MayDead, store.MayPause, store.MayReplay} {
		err := store.May(ctx, c.db, kind)
		switch n := mysqlerr.Number(err); {
		case n == mysqlerr.NoRight || n == mysqlerr.NoColumnRight:
			missing[kind] = reason(err)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// whyNot returns what is missing for a kind of actions, or "".
func (c *actor) whyNot(ctx context.Context, kind string) string {
	r := c.rights.get(ctx, c.base)
	missing, known := r.data.(map[string]string)
	switch {
	case !c.cfg.Actions:
		return "actions are off"
	case errors.Is(r.err, errNoAccount):
		return r.err.Error()
	case !known && r.err != nil:
		return reason(r.err)
	case !known:
		return "whether the account may do this is not known yet; try again"
	}
	return missing[kind]
}

// onDead reports whether dead letters can be retried, corrected and discarded here, as last read.
func (c *actor) onDead() bool {
	latest, cancel := context.WithCancel(c.base)
	cancel()
	return c.cfg.Actions && c.whyNot(latest, store.MayDead) == ""
}

// A listedAction is an action in the panel.
type listedAction struct{ Name, Title, Missing string }

// listActions lists the actions, each with the reason if it is not possible.
func (c *actor) listActions(ctx context.Context) (any, error) {
	var list []listedAction
	for _, a := range actions {
		list = append(list, listedAction{a.Name, a.Title, c.whyNot(ctx, a.may)})
	}
	return list, nil
}

// many returns a number with its unit.
func many(n int, name string) string { return output.Count(n) + " " + unit(n, name) }

// past reads a field with the age of something.
func past(in url.Values, name string) (time.Duration, error) {
	text := strings.TrimSpace(in.Get(name))
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: must be a positive duration, for example 30m", text)
	}
	return d, nil
}

// moment returns the time that ages are counted from: when the page first showed the action, by the
// clock of MySQL. A ticket keeps it, so the same rows are chosen later.
func (c *actor) moment(ctx context.Context, in url.Values) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, in.Get("at")); err == nil {
		return at, nil
	}
	at, err := history.ReadClock(ctx, c.db)
	if err == nil {
		in.Set("at", at.Format(time.RFC3339Nano))
	}
	return at, err
}

// absolute returns a time for a sentence.
func absolute(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

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

const (
	shortRun = 700 * time.Millisecond // an action that ends sooner shows only its result
	keptRuns = 200                    // in memory
)

// A run is an action under way, or its result. It continues when its page is left.
type run struct {
	Action     action
	Says, Find string
	Began      time.Time
	ended      chan struct{}

	mu    sync.Mutex
	state runState
}

// A runState is how far a run is.
type runState struct {
	Over                  bool
	Progress, Result, Err string
}

// runs are the latest runs of this process. Safe for concurrent use.
type runs struct {
	mu     sync.Mutex
	byID   map[string]*run
	order  []string
	active sync.WaitGroup
}

// start begins a run, or returns the run that has the ID already. It returns nil after base has
// ended.
func (all *runs) start(base context.Context, id string, r *run, do func(ctx context.Context, progress func(string)) (string, error)) *run {
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.byID[id]; known != nil || base.Err() != nil {
		return known
	}
	r.Began, r.ended = time.Now(), make(chan struct{})
	all.byID[id], all.order = r, append(all.order, id)
	if len(all.order) > keptRuns {
		delete(all.byID, all.order[0])
		all.order = all.order[1:]
	}
	all.active.Go(func() {
		defer close(r.ended)
		result, err := do(base, func(progress string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.state.Progress = progress
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state.Over, r.state.Result = true, result
		if err != nil {
			r.state.Err = reason(err)
		}
	})
	return r
}

// get returns a run, or nil.
func (all *runs) get(id string) *run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// waitAll waits for all runs. Base must have ended.
func (all *runs) waitAll() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.active.Wait()
}

// showRun serves the progress or the result of an action.
func (c *actor) showRun(w http.ResponseWriter, r *http.Request) {
	found := c.runs.get(r.PathValue("id"))
	if found == nil {
		c.write(w, r, http.StatusNotFound, "run", nil)
		return
	}
	found.mu.Lock()
	data := struct {
		*run
		runState
	}{found, found.state}
	found.mu.Unlock()
	if !data.Over {
		w.Header().Set("Refresh", "1") // with and without JavaScript
	}
	c.write(w, r, http.StatusOK, "run", data)
}
