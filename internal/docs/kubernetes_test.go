package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/internal/testenv"
)

const manifestFile = "deploy/kubernetes.yaml"

// A container is one of manifestFile.
type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		ContainerPort int `yaml:"containerPort"`
	}
	LivenessProbe struct {
		HTTPGet struct{ Path string } `yaml:"httpGet"`
	} `yaml:"livenessProbe"`
	ReadinessProbe struct {
		HTTPGet struct{ Path string } `yaml:"httpGet"`
	} `yaml:"readinessProbe"`
	VolumeMounts []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// command returns the command that a kubelet would start, with variables from secrets.
func (c container) command(program string, secrets map[string]string) *exec.Cmd {
	cmd := exec.Command(program, c.Args...)
	cmd.Env = testenv.Environ()
	for _, v := range c.Env {
		value := v.Value
		if from := v.ValueFrom.SecretKeyRef; from.Name != "" {
			value = secrets[from.Name+" "+from.Key]
		}
		cmd.Env = append(cmd.Env, v.Name+"="+value)
	}
	return cmd
}

// testKubernetes starts the containers of the manifest as a kubelet does: the migration, and then a
// worker, which answers its probes and reads a changed ConfigMap.
func testKubernetes(t *testing.T, program string) {
	var deployment struct {
		Kind string
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []container `yaml:"initContainers"`
					Containers     []container
				}
			}
		}
	}
	for _, document := range strings.Split(read(t, manifestFile), "\n---\n") {
		if strings.Contains(document, "\nkind: Deployment\n") {
			if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("containers %+v", pod)
	}
	shop, cache := testenv.MySQL(t), testenv.Redis(t)
	secrets := map[string]string{"unstale-migrate MYSQL_DSN": shop.DSN, "unstale MYSQL_DSN": shop.DSN, "unstale REDIS_URL": cache.URL}
	if out, err := pod.InitContainers[0].command(program, secrets).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	c := pod.Containers[0]
	volume := configMap{t, t.TempDir()}
	volume.write("1", "version: 1\nentities: {product: {keys: [\"shop:product:{id}\"]}}\n")
	for from, to := range map[string]string{
		c.VolumeMounts[0].MountPath + "/": volume.place + "/",
		// another test may use the port
		fmt.Sprintf("--listen=:%d", c.Ports[0].ContainerPort): "--listen=127.0.0.1:0",
	} {
		i := slices.IndexFunc(c.Args, func(arg string) bool { return strings.Contains(arg, from) })
		if i < 0 {
			t.Fatalf("no argument of %q has %s", c.Args, from)
		}
		c.Args[i] = strings.Replace(c.Args[i], from, to, 1)
	}
	w := launch(t, c.command(program, secrets))
	w.until("it serves", func() bool { return w.log.has(`"address":`) })
	w.until("it is alive", func() bool { return strings.HasPrefix(w.get(c.LivenessProbe.HTTPGet.Path), "200 ") })
	w.until("it is ready", func() bool { return strings.HasPrefix(w.get(c.ReadinessProbe.HTTPGet.Path), "200 ") })
	volume.write("2", "version: 1\nentities: {category: {keys: [\"shop:category:{id}\"]}}\n")
	w.until("it uses the new map", func() bool {
		return strings.Contains(w.get("/metrics"), "\nunstale_map_reloads_total{result=\"loaded\"} 1\n")
	})
	w.stop()
}

// A configMap is a directory that is the volume of a ConfigMap.
type configMap struct {
	t     *testing.T
	place string
}

// write replaces the content as a kubelet does: it makes a new directory, and then lets the link
// ..data lead there.
func (c configMap) write(version, text string) {
	c.t.Helper()
	data, next := filepath.Join(c.place, "..data"), filepath.Join(c.place, "..data_tmp")
	err := os.Mkdir(filepath.Join(c.place, ".."+version), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.place, ".."+version, "mapping.yaml"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.Symlink(".."+version, next)
	}
	if err == nil {
		err = os.Rename(next, data)
	}
	if err == nil && version == "1" {
		err = os.Symlink("..data/mapping.yaml", filepath.Join(c.place, "mapping.yaml"))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
