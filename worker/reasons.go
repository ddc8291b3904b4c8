package worker

import "github.com/unstale/unstale/internal/operate"

// Why rows make no progress: the label of the metric unstale_stalled.
const (
	stalledCommit = "commit" // a COMMIT does not return
	stalledHeld   = operate.StalledHeld
	stalledBehind = operate.StalledBehind
)

var stalledReasons = []string{stalledCommit, stalledHeld, stalledBehind}
