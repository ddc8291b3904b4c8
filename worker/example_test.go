package worker_test

import (
	"context"
	"errors"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/worker"
)

// A service embeds a worker next to its HTTP server: SIGTERM ends both, the worker after the
// current batch. The service serves the worker's metrics and health together with its own.
func ExampleWorker() {
	serve := func() error {
		db := mysql.NewConfig()
		db.User, db.Passwd, db.Net, db.Addr, db.DBName = "unstale", "secret", "tcp", "db:3306", "shop"
		w, err := worker.New(worker.Config{
			MySQL:   db,
			Redis:   &redis.UniversalOptions{Addrs: []string{"cache:6379"}},
			MapFile: "mapping.yaml",
		})
		if err != nil {
			return err
		}
		prometheus.MustRegister(w.Metrics())
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.Handler())
		mux.Handle("GET /healthz", w.HealthHandler())
		mux.Handle("GET /readyz", w.HealthHandler())
		server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}

		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return w.Run(ctx) })
		group.Go(func() error {
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return server.Shutdown(ending)
		})
		return group.Wait()
	}
	_ = serve
}
