package worker

import "github.com/unstale/unstale/internal/store"

// Why rows make no progress: the label of the metric unstale_stalled.
const (
	stalledCommit = "commit" // a COMMIT does not return
	stalledHeld   = store.StalledHeld
	stalledBehind = store.StalledBehind
)

var stalledReasons = []string{stalledCommit, stalledHeld, stalledBehind}
