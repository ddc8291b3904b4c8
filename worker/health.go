package worker

import (
	"encoding/json"
	"net/http"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/status"
)

// healthHandler serves the state of a worker over HTTP:
//
//   - /healthz is 200 while the loop runs, even in an outage: restart the process if it is not.
//   - /readyz is 200 while both servers answer and rows make progress, otherwise 503 with the
//     reason.
func healthHandler(s *maintenance.State) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(s.Alive))
	mux.HandleFunc("GET /readyz", answer(func() error { return ready(s) }))
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply := struct {
			OK    bool   `json:"ok"`
			Error string `json:"error,omitempty"`
		}{OK: true}
		code := http.StatusOK
		if err := check(); err != nil {
			reply.OK, reply.Error, code = false, err.Error(), http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false) // errors name rules such as &channel
		_ = e.Encode(reply)    // the client is gone, or it has the answer
	}
}

// ready returns why a worker does not work at the moment, or nil.
func ready(s *maintenance.State) error { return status.NotReady(s.Note(), s.SweepError()) }
