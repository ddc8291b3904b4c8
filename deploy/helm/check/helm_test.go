package check

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	root  = "../../../"
	chart = "../unstale"

	oldest = "1.27" // kubeVersion of Chart.yaml
)

var update = flag.Bool("update", false, "write the files that are copied or rendered")

// helm runs helm, and returns its output, or in its place the error that it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Fatal("HELM does not name the program helm: run make test-chart")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append(args, "--kube-version", oldest)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// no cluster, and no repositories or plugins of a user
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HOME="+t.TempDir())
	if err := cmd.Run(); err != nil {
		return "", errors.New(err.Error() + "\n" + stdout.String() + stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("helm %q warns: %s", args, stderr.String())
	}
	return stdout.String(), nil
}

// render renders the chart as a release with arguments such as --values.
func render(t *testing.T, release string, args ...string) objects {
	t.Helper()
	text, err := helm(t, append([]string{"template", release, chart}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// objects are the Kubernetes objects of a release.
type objects []runtime.Object

// decode reads manifests as strictly as the API server: it refuses unknown and repeated fields.
func decode(t *testing.T, manifests string) (all objects) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := serializer.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all = append(all, object)
	}
}

// find returns the objects of a type.
func find[T runtime.Object](all objects) (found []T) {
	for _, object := range all {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// one returns the only object of a type.
func one[T runtime.Object](t *testing.T, all objects) T {
	t.Helper()
	found := find[T](all)
	if len(found) != 1 {
		t.Fatalf("%d objects %T", len(found), *new(T))
	}
	return found[0]
}
