package check

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Values reach the objects unchanged, even if they look like templates, other types of YAML, more
// YAML, or references to variables, which Kubernetes expands.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	file := chart + "/ci/hostile-values.yaml"
	type reference struct{ Name, Key string }
	var values struct {
		Map               struct{ Text string }
		Env               map[string]string
		Secrets           map[string]reference
		Migrate           struct{ Secret reference }
		PodAnnotations    map[string]string
		NodeSelector      map[string]string
		ImagePullSecrets  []string
		PriorityClassName string
	}
	if err := yaml.Unmarshal([]byte(read(t, file)), &values); err != nil {
		t.Fatal(err)
	}
	all := render(t, "unstale", "--values", file)
	if got := one[*corev1.ConfigMap](t, all).Data; len(got) != 1 || got["mapping.yaml"] != values.Map.Text {
		t.Errorf("the map is\n%q, wanted\n%q", got, values.Map.Text)
	}
	template := one[*appsv1.Deployment](t, all).Spec.Template
	pod := template.Spec
	want := map[string]reference{}
	for name, from := range values.Secrets {
		want["worker "+name] = from
	}
	want["migrate MYSQL_DSN"] = values.Migrate.Secret
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		variables := 0
		for _, v := range c.Env {
			if v.ValueFrom != nil {
				got := reference{v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key}
				if got != want[c.Name+" "+v.Name] {
					t.Errorf("%s of %s is from %q", v.Name, c.Name, got)
				}
				delete(want, c.Name+" "+v.Name)
				continue
			}
			variables++
			plain := strings.ReplaceAll(v.Value, "$$", "$") // as Kubernetes does
			if strings.Count(v.Value, "$") != 2*strings.Count(plain, "$") || plain != values.Env[v.Name] {
				t.Errorf("%s of %s is %q, wanted %q", v.Name, c.Name, v.Value, values.Env[v.Name])
			}
		}
		if variables != len(values.Env) {
			t.Errorf("%s has %d variables, wanted %d", c.Name, variables, len(values.Env))
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	equal(t, "annotations", template.Annotations, values.PodAnnotations)
	equal(t, "node selector", pod.NodeSelector, values.NodeSelector)
	if pod.ImagePullSecrets[0].Name != values.ImagePullSecrets[0] || pod.PriorityClassName != values.PriorityClassName {
		t.Errorf("%v, %q", pod.ImagePullSecrets, pod.PriorityClassName)
	}
	if template.Labels["app.kubernetes.io/name"] != "unstale" || template.Labels["number"] != "1" {
		t.Errorf("labels %v", template.Labels)
	}
}

func equal(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d, wanted %d", what, len(got), len(want))
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %q, wanted %q", what, name, got[name], value)
		}
	}
}

// Maps of files are installed byte by byte: the shipped one, whose comments have template braces,
// and others.
func TestMapFiles(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"shipped":     read(t, root+"mapping.yaml"),
		"line breaks": "version: 1\n\n\n",
		"empty lines": "\n\nversion: 1\n\n \n\n",
		"no break":    "version: 1",
		"indented":    "  version: 1\n\tx: {{ .Values }}\n",
		"DOS":         "version: 1\r\n",
	} {
		file := filepath.Join(t.TempDir(), "map.yaml")
		write(t, file, text)
		got := one[*corev1.ConfigMap](t, render(t, "unstale", "--values", chart+"/ci/map-values.yaml", "--set-file", "map.text="+file))
		if got.Data["mapping.yaml"] != text {
			t.Errorf("%s: the map is %q, wanted %q", name, got.Data["mapping.yaml"], text)
		}
	}
}
