package docs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
)

// redis_exporter with the flags of the page and the rules of `unstale acl` has the metrics that
// alerts and the dashboard use, and each of the rules is needed.
func TestExporter(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	address := listenAddress(t)
	flags := strings.Fields(onlyBlock(t, metricsPage, "sh", "redis_exporter").text)[1:]
	launch(t, exec.Command(monitoring(t, "prometheus-redis-exporter", "redis_exporter"), append(flags,
		"-redis.addr", server.Addr(), "-redis.user", "exporter", "-redis.password", "secret", "-web.listen-address", address)...))
	scrape := func() (string, error) {
		r, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	testenv.Eventually(t, "an exporter", func() bool { _, err := scrape(); return err == nil })
	testenv.EachRule(t, admin, "exporter", doctor.ACLRules(doctor.Exporter, doctor.ACLOptions{}), func(string) error {
		text, err := scrape()
		for _, metric := range []string{
			"redis_up 1", "redis_commands_total{", "redis_commands_duration_seconds_total{", "redis_connected_clients", "redis_evicted_keys_total", "redis_expired_keys_total",
			"redis_keyspace_hits_total", "redis_keyspace_misses_total", "redis_mem_fragmentation_ratio", "redis_memory_max_bytes", "redis_memory_used_bytes",
			"redis_net_input_bytes_total", "redis_net_output_bytes_total", "redis_rejected_connections_total", "redis_slowlog_last_id",
		} {
			if !strings.Contains(text, "\n"+metric) {
				err = errors.Join(err, fmt.Errorf("there is no %s", metric))
			}
		}
		return err
	})
}
