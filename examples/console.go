package examples

import (
	"net/http"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/console"
	"github.com/unstale/unstale/worker"
)

// AddConsole serves the console of a worker in this process below /unstale. Close it at the end.
func AddConsole(mux *http.ServeMux, operator *mysql.Config, w *worker.Worker, token string) (*console.Console, error) {
	page, err := console.New(console.Config{Prefix: "/unstale", MySQL: operator, Worker: w, Token: token})
	if err != nil {
		return nil, err
	}
	mux.Handle("/unstale/", page)
	return page, nil
}
