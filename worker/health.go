package worker

import (
	"encoding/json"
	"net/http"

	"github.com/unstale/unstale/internal/maintenance"
)

// healthHandler serves the state of a worker over HTTP:
//
//   - /healthz is 200 while the loop runs, even in an outage: restart the process if it is not.
//   - /readyz is 200 while both servers answer and rows make progress, otherwise 503 with the
//     reason.
func healthHandler(s *maintenance.State) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(s.Alive))
	mux.HandleFunc("GET /readyz", answer(s.Ready))
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply := struct {
			OK    bool   `json:"ok"`
			Error string `json:"error,omitempty"`
		}{OK: true}
		status := http.StatusOK
		if err := check(); err != nil {
			reply.OK, reply.Error, status = false, err.Error(), http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false) // errors name rules such as &channel
		_ = e.Encode(reply)    // the client is gone, or it has the answer
	}
}
