package doctor_test

import (
	"strings"

	"github.com/unstale/unstale/internal/doctor"
)

const publisher = "reset on >secret -@all +subscribe +publish"

// letPublish creates users that may publish to readers, and users that may not. The check names
// only the first, and with fewer permissions it is unknown.
func (w *testbed) letPublish() {
	t := w.t
	t.Helper()
	w.wantNoPublisher()
	may := map[string]string{
		"shop": publisher + " &cache:*", "lazy": "reset on >secret ~* &* +@all",
		"sharded":  "reset on >secret -@all +spublish &cache:invalidate",
		"selector": "reset on >secret -@all (+publish &cache:invalidate)", "default": "+publish",
	}
	for user, rules := range may {
		w.acl(user, rules)
	}
	w.acl("wakes", publisher+" resetchannels &cache:outbox:wake")
	w.acl("reads", "reset on >secret -@all +subscribe &cache:invalidate")
	w.acl("away", publisher+" &cache:* off")
	f := find(w.examine("redis-publishers"), "redis-publishers", "publish also default, lazy, selector, sharded, shop")
	if f == nil || f.Severity != doctor.Warning || !strings.Contains(f.Cure, "ACL SETUSER default off") {
		t.Errorf("users that may publish: %+v", w.examine("redis-publishers"))
	}
	for _, right := range []string{"acl|users", "acl|getuser", "acl|dryrun"} {
		w.acl(audit, "-"+right)
		w.wantUnknown("redis-publishers", "+"+right)
		w.acl(audit, "+"+right)
	}
}

// forbidPublishing runs the lines of the finding. A selector needs the other line of the page.
func (w *testbed) forbidPublishing() {
	w.t.Helper()
	f := find(w.examine("redis-publishers"), "redis-publishers", "publish also")
	for line := range strings.Lines(f.Cure) {
		// The test itself works as default.
		if strings.HasPrefix(line, "ACL ") && !strings.HasPrefix(line, "ACL SETUSER default") {
			w.do(line)
		}
	}
	w.acl("default", noPublish)
	if f := find(w.examine("redis-publishers"), "redis-publishers", "publish also selector"); f == nil || strings.Contains(f.Evidence, ",") {
		w.t.Errorf("after the lines: %+v", w.examine("redis-publishers"))
	}
	w.acl("selector", "resetchannels &cache:invalidate -publish -spublish clearselectors (+publish &cache:outbox:wake)")
	w.wantNoPublisher()
	w.do("acl deluser shop lazy sharded selector wakes reads away")
}

func (w *testbed) wantNoPublisher() {
	w.t.Helper()
	w.acl("default", noPublish) // a replica of the test may have needed more
	if all := w.examine("redis-publishers"); len(all) != 1 || all[0].Severity != doctor.OK {
		w.t.Errorf("where only the worker publishes: %+v", all)
	}
}
