//go:build soak || browser

package main

import "fmt"

// harmful are texts that would do harm as HTML, SQL, a glob, a template, an event or a header.
var harmful = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</code></td><b>`, `</title><script>`, `javascript:alert(1)`,
	`<!--`, `]]>`, `&lt;b&gt;`, `{{.}}`, `${7*7}`, `' OR '1'='1`, `'; DROP TABLE cache_outbox; --`, `" UNION SELECT 1`, `*`, `?`, `[a-z]`, `\*`, `\`, `%`, `_`, `%00`, `%2e%2e/`,
	"a\nevent: dead\ndata: x", "a\r\n\r\nb", "\x00", "\x1b[31m", "\u202eabc", "\u2028", "\ufeff", "é", "日本語", "👩‍👩‍👧", "a\tb", " a ", "../../etc/passwd", "//evil.example", "style=\"x\"", "`x`", "0", "-1", "1e9", "null",
}

// hostile returns texts with each of harmful, alone and within others.
func hostile() (list []string) {
	for _, text := range harmful {
		for _, wrap := range []string{"%s", "shop:%s", "%s%[1]s", "x'%s", `x"%s`} {
			list = append(list, fmt.Sprintf(wrap, text))
		}
	}
	return list
}
