package alter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/alter"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A change without triggers fails the check, and so do writes that fail.
func TestChecksOfRecipes(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "unstale")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/unstale").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	flavor := servers.Kind(os.Getenv("UNSTALE_TEST_DB"))
	recipes, err := alter.Find(flavor, "drop the triggers, change, apply", "ALTER, in place")
	if err != nil {
		t.Fatal(err)
	}
	recipes = append(recipes,
		alter.Recipe{Name: "stale keys", Steps: recipes[0].Steps[:3]},
		alter.Recipe{Name: "unstale capture diff", Steps: recipes[1].Steps[:2]},
		alter.Recipe{Name: "too few writes"},
		alter.Recipe{Name: "Error 1054", Steps: []string{"ALTER TABLE products CHANGE price cost INT NOT NULL;"}},
	)
	report, err := alter.Run(t.Context(), alter.Config{Binary: binary, Flavor: flavor, Recipes: recipes, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	for i, r := range report.Results {
		if i < 2 && r.Wrong != "" || i >= 2 && !strings.Contains(r.Wrong, r.Recipe) {
			t.Errorf("%s: %q", r.Recipe, r.Wrong)
		}
	}
}

// The documentation prints the steps that are tested.
func TestDocumentedSteps(t *testing.T) {
	page, err := os.ReadFile("../../docs/capture.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", "")), " ")
	for _, r := range alter.Recipes[1:] { // the first one is wrong on purpose
		for _, step := range r.Steps {
			if !strings.HasPrefix(step, "ALTER TABLE products ADD") && !strings.Contains(text, strings.TrimSuffix(step, ";")) {
				t.Errorf("%s: docs/capture.md does not have %q", r.Name, step)
			}
		}
	}
}
