package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

// mostTried bounds the number of the map's names that are tried.
const mostTried = 500

// redisRights runs a worker's commands, on made-up names.
func redisRights(ctx context.Context, e *Exam) (all []Finding, err error) {
	t, cut := trialOf(e.Map)
	t.Wake, t.Wait = e.Wake, e.Wait
	rights, err := e.Redis.Account.TryRights(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, node := range nodesOf(rights) {
		all = append(all, node.findings(cmp.Or(e.RedisUser, "default"))...)
	}
	if cut > 0 {
		all = append(all, unseen("rights on "+count(cut, "more name")+" of the map", fmt.Errorf("%d were tried", mostTried),
			"see that the account's patterns cover them: unstale map explain shows what a row makes"))
	}
	if e.Map == nil {
		all = append(all, unseen("rights on the names and the channel of the map", errors.New("there is no map"), flags[aMap]))
	}
	if len(all) == 0 {
		all = append(all, well("%s are there, each was tried", count(len(rights), "right")))
	}
	return all, nil
}

// A nodeRights is the result of permission trials on one node, or on several with the same result.
// Each node of a Cluster has its own list of accounts.
type nodeRights struct {
	addrs  []string // none outside Redis Cluster
	rights []keyspace.Right
}

// nodesOf groups permissions by nodes.
func nodesOf(rights []keyspace.Right) (nodes []nodeRights) {
	outcome := func(a, b keyspace.Right) bool {
		return a.What == b.What && a.Rule == b.Rule && (a.Err == nil) == (b.Err == nil) && a.Away == b.Away
	}
	for len(rights) > 0 {
		n := slices.IndexFunc(rights, func(r keyspace.Right) bool { return r.Node != rights[0].Node })
		if n < 0 {
			n = len(rights)
		}
		some := rights[:n]
		rights = rights[n:]
		same := slices.IndexFunc(nodes, func(other nodeRights) bool { return slices.EqualFunc(other.rights, some, outcome) })
		if same < 0 {
			same, nodes = len(nodes), append(nodes, nodeRights{rights: some})
		}
		if addr := some[0].Node; addr != "" {
			nodes[same].addrs = append(nodes[same].addrs, addr)
		}
	}
	return nodes
}

func (n *nodeRights) findings(user string) (all []Finding) {
	at, on := "", ""
	if len(n.addrs) > 0 {
		at, on = "\nat "+strings.Join(n.addrs, ", "), "\non each of these nodes: "+strings.Join(n.addrs, ", ")
	}
	lacks, lesser := rulesOf(n.rights, func(r keyspace.Right) bool { return r.Loss == "" }), rulesOf(n.rights, func(r keyspace.Right) bool { return r.Loss != "" })
	if len(lacks.rules) > 0 {
		all = append(all, found(Critical, "the worker's Redis account lacks rights", lacks.text()+at, "ACL SETUSER "+user+" "+strings.Join(lacks.rules, " ")+on))
	}
	if len(lesser.rules) > 0 {
		all = append(all, found(Warning, "the worker's Redis account lacks rights that a worker can do without", lesser.text()+at,
			"ACL SETUSER "+user+" "+strings.Join(lesser.rules, " ")+on))
	}
	refused := false
	for _, r := range slices.Concat(lacks.unclear, lesser.unclear) {
		var o *keyspace.Outage
		isOutage := errors.As(r.Err, &o)
		switch {
		case r.Away && isOutage && (o.State == keyspace.StateAuth || o.State == keyspace.StateNoPerm):
			all = append(all, found(Critical, "the worker's Redis account is not at each node: where a replica without it takes over, rows wait", o.Error()+at,
				"run the line of `unstale acl worker` there"+on))
		case r.Away:
			all = append(all, unseen("the rights at a node that does not answer", fmt.Errorf("%w%s", r.Err, at), notReached))
		case !isOutage:
			all = append(all, unseen("the right "+r.What, fmt.Errorf("%w%s", r.Err, at), ""))
		case !refused: // the first represents all
			refused = true
			all = append(all, found(Critical, "Redis refuses what a worker does", r.What+": "+o.Error()+at, "bring it back to take writes; docs/operations.md lists the states"))
		}
	}
	return all
}

// trialOf returns the permission trial for a worker's map, and how many of the map's names it
// leaves out.
func trialOf(m *invalidation.Map) (t keyspace.Trial, cut int) {
	if m == nil {
		return t, 0
	}
	t.Channel = m.Channel()
	text := "unstale-doctor-" + rand.Text()
	seen := map[string]bool{}
	for _, n := range m.Names() {
		t.Scans = t.Scans || n.Kind == invalidation.KindPattern
		if seen[n.Glob] {
			continue
		}
		seen[n.Glob] = true
		if len(seen) > mostTried {
			cut++
			continue
		}
		name := keyspace.TrialKey(n.Glob, text)
		switch {
		case !strings.Contains(n.Glob, "*"): // the same for all rows, so other clients may use it
			t.Fixed = append(t.Fixed, name)
		case n.Kind == invalidation.KindSet:
			t.Sets = append(t.Sets, name)
		default:
			t.Keys = append(t.Keys, name)
			if n.Hold > 0 && n.Kind != invalidation.KindPattern {
				t.Held = append(t.Held, name)
			}
		}
	}
	if len(t.Sets) > 0 { // the worker unlinks members
		for _, glob := range m.Reads().Globs(invalidation.KindKey) {
			if strings.Contains(glob, "*") { // otherwise other clients may use it
				t.Keys = append(t.Keys, keyspace.TrialKey(glob, text))
			}
		}
	}
	return t, cut
}

// A denials collects the missing permissions of an account.
type denials struct {
	rules   []string // for ACL SETUSER, each once
	losses  []string
	unclear []keyspace.Right
}

func rulesOf(rights []keyspace.Right, of func(keyspace.Right) bool) (d denials) {
	for _, r := range rights {
		if !of(r) {
			continue
		}
		if r.Err != nil {
			d.unclear = append(d.unclear, r)
		}
		for _, rule := range strings.Fields(r.Rule) {
			if slices.Contains(d.rules, rule) {
				continue
			}
			d.rules = append(d.rules, rule)
			loss := "NOPERM at " + r.What
			if r.Loss != "" {
				loss += ": " + r.Loss
			}
			d.losses = append(d.losses, loss)
		}
	}
	return d
}

func (d denials) text() string {
	const most = 10
	if len(d.losses) > most {
		return strings.Join(d.losses[:most], "\n") + fmt.Sprintf("\nand %d more", len(d.losses)-most)
	}
	return strings.Join(d.losses, "\n")
}
