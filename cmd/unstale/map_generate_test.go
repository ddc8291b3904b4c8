package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// generate writes a package from a map without any environment, and --check compares.
func TestMapGenerate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shopcache", "shopcache.go")
	args := []string{"map", "generate", "--package", "shopcache", "-o", file, shippedMap}
	empty := map[string]string{"APP_ENV": ""}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{append(args, "--check"), exitFail, "is not up to date with"},
		{args, exitDone, "wrote " + file},
		{args, exitDone, "is up to date"},
		{append(args, "--check"), exitDone, "is up to date"},
		{[]string{"map", "generate", "--package", "shop", shippedMap}, exitDone, "func ProductPage(productID int64) cache.Read {"},
		{[]string{"map", "generate", shippedMap}, exitUsage, "--package is required"},
		{[]string{"map", "generate", "--package", "shop", "--check", shippedMap}, exitUsage, "give -o FILE"},
		{[]string{"map", "generate", "--package", "shop", "--lang", "cobol", shippedMap}, exitUsage, "--lang cobol: must be go, typescript or php"},
		{[]string{"map", "generate", "--typescript", "--lang", "go", shippedMap}, exitUsage, "--typescript cannot be combined with --lang go"},
		{[]string{"map", "generate", "--typescript", "--package", "shop", shippedMap}, exitUsage, "--package is for Go"},
		{[]string{"map", "generate", "--lang", "typescript", "--check", shippedMap}, exitUsage, "give -o FILE"},
		{[]string{"map", "generate", "--php", "--lang", "go", shippedMap}, exitUsage, "--php cannot be combined with --lang go"},
		{[]string{"map", "generate", "--php", "--typescript", shippedMap}, exitUsage, "--typescript cannot be combined with --php"},
		{[]string{"map", "generate", "--php", "--package", "shop", shippedMap}, exitUsage, "--package is for Go; use --class for PHP"},
		{[]string{"map", "generate", "--typescript", "--class", "Shop", shippedMap}, exitUsage, "--class is for PHP"},
		{[]string{"map", "generate", "--php", "--check", shippedMap}, exitUsage, "give -o FILE"},
		{[]string{"map", "generate", "--php", "--class", "App/Shop", shippedMap}, exitFail, `must be a PHP class name, for example 'App\ShopCache'`},
		{[]string{"map", "generate", "--package", "my shop", shippedMap}, exitFail, `--package "my shop"`},
		{[]string{"map", "generate", "--package", "shop", writeFile(t, "version: 2\n")}, exitFail, "version"},
	} {
		if r := call(t, empty, step.args...); r.code != step.code || !strings.Contains(r.out+r.err, step.want) {
			t.Errorf("%q: %+v", step.args, r)
		}
	}
	if err := os.WriteFile(file, []byte("package shopcache\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := call(t, empty, append(args, "--check")...); r.code != exitFail {
		t.Errorf("a changed file: %+v", r)
	}
}

// --typescript and --lang typescript write a module, and --check compares.
func TestMapGenerateTypeScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "src", "shopcache.ts")
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--typescript", "-o", file, "--check"}, exitFail, "is not up to date with"},
		{[]string{"--typescript", "-o", file}, exitDone, "wrote " + file},
		{[]string{"--lang", "typescript", "-o", file, "--check"}, exitDone, "is up to date"},
		{[]string{"--typescript", "--lang", "typescript"}, exitDone, "export function productPage<T = unknown>(productId: Id): Read<T> {"},
	} {
		if r := call(t, map[string]string{"APP_ENV": ""}, append([]string{"map", "generate", shippedMap}, step.args...)...); r.code != step.code || !strings.Contains(r.out+r.err, step.want) {
			t.Errorf("%q: %+v", step.args, r)
		}
	}
}

// --php and --lang php write a class, and --check compares.
func TestMapGeneratePHP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "src", "ShopCache.php")
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--php", "-o", file, "--check"}, exitFail, "is not up to date with"},
		{[]string{"--php", "-o", file}, exitDone, "wrote " + file},
		{[]string{"--lang", "php", "-o", file, "--check"}, exitDone, "is up to date"},
		{[]string{"--php", "--class", `App\ShopCache`, "-o", file, "--check"}, exitFail, "is not up to date with"},
		{[]string{"--php", "--lang", "php"}, exitDone, "public static function productPage(mixed $productId): \\Unstale\\Read"},
		{[]string{"--php", "--class", `App\ShopCache`}, exitDone, `namespace App;`},
	} {
		if r := call(t, map[string]string{"APP_ENV": ""}, append([]string{"map", "generate", shippedMap}, step.args...)...); r.code != step.code || !strings.Contains(r.out+r.err, step.want) {
			t.Errorf("%q: %+v", step.args, r)
		}
	}
}

// describe lists reads and entities. Its JSON has the fingerprint if the variables are set.
func TestMapDescribe(t *testing.T) {
	t.Parallel()
	r := call(t, nil, "map", "describe", shippedMap)
	for _, want := range []string{"product_page", "{app}:{env}:product:{product_id}", "9m..11m", "from product, variant, inventory", "category_id: int, product_id: int (required)", "fingerprint of reads"} {
		if r.code != exitDone || !strings.Contains(r.out, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
	for env, set := range map[string]bool{"": false, "prod": true} {
		var object struct {
			ReadsVersion string `json:"reads_version"`
			Reads        []struct {
				Name string
				Key  []map[string]string
				TTL  int64 `json:"ttl_max_ms"`
			}
			Entities []struct{ Name, Type string }
		}
		r := call(t, map[string]string{"APP_ENV": env}, "map", "describe", shippedMap, "--json")
		if err := json.Unmarshal([]byte(r.out), &object); err != nil || r.code != exitDone {
			t.Fatalf("%v: %+v", err, r)
		}
		if (object.ReadsVersion != "") != set || object.Reads[0].TTL != 660_000 || object.Reads[0].Key[4]["hole"] != "product_id" || object.Entities[0].Type != "int" {
			t.Errorf("APP_ENV=%s: %+v", env, object)
		}
	}
}
