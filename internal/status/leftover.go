package status

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
)

func (j judge) delayed() (list []Cause) {
	for _, f := range j.s.Failing {
		what := fmt.Sprintf("tried again after a failure (%s): %s", f.Reason, count(f.N, "row"))
		// the error of one row has its own counts, so cut them off
		if cause, _, _ := strings.Cut(f.Error, store.PartMark); cause != "" {
			what += ", " + firstLine(cause)
		}
		if f.Reason == "lookup_failed" {
			what += "; where a lookup failed, the error of each row says what was applied without it"
		}
		cure := "see: unstale delayed list --reason " + f.Reason
		if f.WaitsForClock {
			what, cure = what+"; the database's clock was set back, so their time is far off", "a running worker corrects that within seconds; if none runs: unstale delayed retry --reason "+f.Reason
		}
		list = append(list, Cause{"delayed", Stale, j.ago(f.Age), what, cure})
	}
	return list
}

func deadCauses(dead map[string]int, since time.Time) []Cause {
	total, reasons := 0, []string{}
	for reason, n := range dead {
		total += n
		reasons = append(reasons, fmt.Sprintf("%s: %d", reason, n))
	}
	if total == 0 {
		return nil
	}
	sort.Strings(reasons)
	return []Cause{{"dead", Stale, since, count(total, "dead letter") + " (" + strings.Join(reasons, ", ") + "), whose keys may be stale" + partly(dead), "see: unstale dead list"}}
}

// partly returns the hint to the part of a dead letter that describes what was applied despite a
// failed lookup.
func partly(dead map[string]int) string {
	if dead["lookup_failed"] == 0 {
		return ""
	}
	return "; where a lookup failed, the dead letter says what was applied without it"
}

func damagedCauses(batches int) []Cause {
	if batches == 0 {
		return nil
	}
	return []Cause{{"journal_damaged", Unknown, time.Time{}, "batches of the journal that cannot be unlinked again: " + fmt.Sprint(batches), "docs/redis.md#a-damaged-batch"}}
}

func replayCauses(running *store.Pause, broken *store.AuditRecord) []Cause {
	if r := broken; r != nil {
		return []Cause{{"replay_broken", Unknown, r.At, "the replay of " + r.ClaimedBy + " did not come to its end, and what it has not come to may be stale", "run it again: unstale audit list --action replay shows with what"}}
	}
	p := running
	if p == nil {
		return nil
	}
	return []Cause{{"replay", Unknown, p.BeganAt, p.Who + " replays the journal, and what it has not come to may be stale (" + p.Reason + ")", "wait"}}
}
