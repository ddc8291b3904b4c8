package near

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	known := []string{"product", "category", "id"}
	for name, want := range map[string]string{
		"prodcut": `did you mean "product"?`, "Product": `did you mean "product"?`, "categories": "otherwise", "categry": `did you mean "category"?`,
		"ix": `did you mean "id"?`, "": "otherwise", "coupon": "otherwise", "cate": `did you mean "category"?`, "cat": "otherwise",
	} {
		if got := DidYouMean(name, known, "otherwise"); got != want {
			t.Errorf("%q: got %s, wanted %s", name, got, want)
		}
	}
}
