package redisurl

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redacted returns where options lead, as a URL that is fit for a log: passwords are masked.
func Redacted(o *redis.UniversalOptions) string {
	var b strings.Builder
	for name, s := range schemes {
		if s.kind == kindOf(o) && s.tls == (o.TLSConfig != nil) {
			b.WriteString(name)
		}
	}
	b.WriteString("://")
	if o.Username != "" || o.Password != "" {
		b.WriteString(url.PathEscape(o.Username))
		if o.Password != "" {
			b.WriteString(":xxxxx")
		}
		b.WriteByte('@')
	}
	b.WriteString(strings.Join(o.Addrs, ","))
	if kindOf(o) == sentinel {
		b.WriteString("/" + url.PathEscape(o.MasterName))
	}
	if kindOf(o) != cluster {
		b.WriteString("/" + strconv.Itoa(o.DB))
	}
	return b.String() + redactedQuery(o)
}

func redactedQuery(o *redis.UniversalOptions) string {
	var options []string
	if o.SentinelUsername != "" {
		options = append(options, "sentinel_username="+strings.ReplaceAll(url.QueryEscape(o.SentinelUsername), "+", "%20"))
	}
	if o.SentinelPassword != "" {
		options = append(options, "sentinel_password=xxxxx")
	}
	if o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify {
		options = append(options, "skip_verify=true")
	}
	if len(options) == 0 {
		return ""
	}
	return "?" + strings.Join(options, "&")
}
