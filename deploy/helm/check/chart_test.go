package check

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Each example of values makes these kinds, which fit each other.
func TestExamples(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{
		"plain":      "Deployment PodDisruptionBudget ServiceAccount",
		"map":        "ConfigMap Deployment PodDisruptionBudget ServiceAccount",
		"monitoring": "Deployment NetworkPolicy PodDisruptionBudget PrometheusRule Service ServiceAccount ServiceMonitor",
		"files":      "Deployment PodDisruptionBudget ServiceAccount",
		"full":       "Deployment NetworkPolicy PodDisruptionBudget Service ServiceAccount ServiceMonitor",
		"hostile":    "ConfigMap Deployment PodDisruptionBudget ServiceAccount",
	}
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) != len(kinds) {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(path.Base(file), func(t *testing.T) {
			t.Parallel()
			if _, err := helm(t, "lint", "--strict", "--quiet", chart, "--values", file); err != nil {
				t.Error(err)
			}
			all := render(t, "unstale", "--values", file)
			testFit(t, all)
			var got []string
			for _, object := range all {
				got = append(got, object.GetObjectKind().GroupVersionKind().Kind)
			}
			if slices.Sort(got); strings.Join(got, " ") != kinds[strings.TrimSuffix(path.Base(file), "-values.yaml")] {
				t.Errorf("kinds %q", got)
			}
		})
	}
}

// Names stay valid and equal for releases with a long name, or one that YAML takes for a number.
func TestReleaseNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("a", 53), strings.Repeat("a", 45) + "-unstale", "1e3", "true", "my-unstale"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFit(t, render(t, name, "--values", chart+"/ci/monitoring-values.yaml", "--set-string", "map.existingConfigMap=,map.text=version: 1"))
		})
	}
}

// testFit checks what the API server and controllers expect of objects together.
func testFit(t *testing.T, all objects) {
	t.Helper()
	deployment := one[*appsv1.Deployment](t, all)
	pod := deployment.Spec.Template
	worker := pod.Spec.Containers[0]
	ports := map[string]bool{}
	for _, p := range worker.Ports {
		ports[p.Name] = true
	}
	hasPort := func(by string, port intstr.IntOrString) {
		if !ports[port.StrVal] {
			t.Errorf("%s uses the port %v of %v", by, port, ports)
		}
	}
	selects := func(by string, selector map[string]string, chosen map[string]string) {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(chosen)) {
			t.Errorf("%s selects %v, not %v", by, selector, chosen)
		}
	}

	for _, object := range all {
		o, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		testMeta(t, o)
		switch o := object.(type) {
		case *policyv1.PodDisruptionBudget:
			selects("the PodDisruptionBudget", o.Spec.Selector.MatchLabels, pod.Labels)
		case *networkingv1.NetworkPolicy:
			selects("the NetworkPolicy", o.Spec.PodSelector.MatchLabels, pod.Labels)
			hasPort("the NetworkPolicy", *o.Spec.Ingress[0].Ports[0].Port)
		case *monitoringv1.ServiceMonitor:
			service := one[*corev1.Service](t, all)
			selects("the ServiceMonitor", o.Spec.Selector.MatchLabels, service.Labels)
			if o.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
				t.Errorf("the ServiceMonitor scrapes the port %s", o.Spec.Endpoints[0].Port)
			}
			selects("the Service", service.Spec.Selector, pod.Labels)
			hasPort("the Service", service.Spec.Ports[0].TargetPort)
		}
	}
	selects("the Deployment", deployment.Spec.Selector.MatchLabels, pod.Labels)
	selects("the topology", pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels, pod.Labels)
	hasPort("the liveness probe", worker.LivenessProbe.HTTPGet.Port)
	hasPort("the readiness probe", worker.ReadinessProbe.HTTPGet.Port)

	account := one[*corev1.ServiceAccount](t, all)
	if pod.Spec.ServiceAccountName != account.Name || *account.AutomountServiceAccountToken || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("a pod has the token of the account %s", pod.Spec.ServiceAccountName)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		s := c.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s is not confined: %v, %v", c.Name, s, c.Resources)
		}
	}
	testVolumes(t, all, pod.Spec)
}

// testMeta checks a name, labels and annotations.
func testMeta(t *testing.T, o metav1.Object) {
	t.Helper()
	problems := validation.IsDNS1123Subdomain(o.GetName())
	if _, ok := o.(*corev1.Service); ok {
		problems = validation.IsDNS1035Label(o.GetName())
	}
	for key, value := range o.GetLabels() {
		problems = slices.Concat(problems, validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
	}
	if len(problems) > 0 {
		t.Errorf("%T %s: %q", o, o.GetName(), problems)
	}
}

// testVolumes checks that each volume is mounted, and that each container has the files and
// variables that it refers to.
func testVolumes(t *testing.T, all objects, pod corev1.PodSpec) {
	t.Helper()
	files := map[string][]string{} // by volume
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			for _, item := range v.ConfigMap.Items {
				files[v.Name] = append(files[v.Name], item.Path)
			}
			for _, own := range find[*corev1.ConfigMap](all) {
				if own.Name != v.ConfigMap.Name || len(own.Data[v.ConfigMap.Items[0].Key]) == 0 {
					t.Errorf("the volume is of the ConfigMap %s, not of %s", v.ConfigMap.Name, own.Name)
				}
			}
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				for _, item := range source.Secret.Items {
					files[v.Name] = append(files[v.Name], item.Path)
				}
			}
		}
		if len(files[v.Name]) == 0 {
			t.Errorf("the volume %s has no file", v.Name)
		}
	}
	mounted := map[string]bool{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		var paths []string
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			if m.SubPath != "" {
				t.Errorf("%s would never see a change of %s", c.Name, m.Name)
			}
			for _, file := range files[m.Name] {
				paths = append(paths, m.MountPath+"/"+file)
			}
		}
		names := map[string]bool{}
		for _, v := range c.Env {
			if strings.HasPrefix(v.Value, "/run/") && !slices.Contains(paths, v.Value) {
				t.Errorf("%s has %s=%s, and files %q", c.Name, v.Name, v.Value, paths)
			}
			if names[v.Name] {
				t.Errorf("%s has %s twice", c.Name, v.Name)
			}
			names[v.Name] = true
		}
		for _, arg := range c.Args {
			if file, ok := strings.CutPrefix(arg, "--map="); ok && !slices.Contains(paths, file) {
				t.Errorf("%s reads the map %s, and has files %q", c.Name, file, paths)
			}
		}
		for _, name := range map[string][]string{"migrate": {"MYSQL_DSN"}, "worker": {"MYSQL_DSN", "REDIS_URL"}}[c.Name] {
			if names[name] == names[name+"_FILE"] {
				t.Errorf("%s has %s and %s_FILE: %v, %v", c.Name, name, name, names[name], names[name+"_FILE"])
			}
		}
	}
	if len(mounted) != len(pod.Volumes) {
		t.Errorf("mounted are %v of %d volumes", slices.Sorted(maps.Keys(mounted)), len(pod.Volumes))
	}
}

// The init container alone has the account that may create tables.
func TestMigrationSecret(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"secretsAsFiles=false"}, {"secretsAsFiles=true"}} {
		pod := one[*appsv1.Deployment](t, render(t, "unstale", "--values", chart+"/ci/plain-values.yaml", "--set", args[0])).Spec.Template.Spec
		volumes := map[string]string{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = v.String()
		}
		uses := func(c corev1.Container, secret string) bool {
			text := c.String()
			for _, m := range c.VolumeMounts {
				text += volumes[m.Name]
			}
			return strings.Contains(text, secret+",") || strings.Contains(text, secret+"}")
		}
		migrate, worker := pod.InitContainers[0], pod.Containers[0]
		if !uses(migrate, "Name:unstale-migrate") || uses(migrate, "Name:unstale") || uses(worker, "Name:unstale-migrate") || !uses(worker, "Name:unstale") {
			t.Errorf("%q:\n%v\n%v\n%v", args, migrate, worker, volumes)
		}
	}
}
