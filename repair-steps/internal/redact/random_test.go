package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// lineParts are what decides how a line is read.
var lineParts = []string{
	"password", "token", "secret", "DB_PASS", "api_key", "pass", "passphrase", "PWD", "name", "value", "ValueFrom:", "key", "auth", "is", "for", "user", "login ", "-P ", "curl -u ", "mysql -p", "ipmitool",
	"Authorization", "Cookie", "Bearer", "Basic YTpiYg", "://", "@", "@tcp(", "?sig=", "hooks.slack.com/", "<password>", "</password>", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----",
	"Private-Lines: 1", "Private-MAC: x", "ghp_aaaaaaaaaaaaaaaaaaaa", "eyJhbGciOi.aaaa.bbbb", "AKIA" + "ABCDEFGHIJKLMNOP", "hf_", "$6$aaaaaaaaaaaaaaaaaaaaa", "hunter2", "Ab1Cd2Ef3Gh4Ij5K", "true", "1", "é",
	"=", ":", ": ", " ", "  ", "\t", "\r", "\n", "\n  ", `\n`, `\\n`, `"`, "'", `\"`, `\\\"`, "|", ">-", "[", "]", "{", "}", ",", "- ", "--", "a1=", `\u003c`, `=\u003e`, "%3D", Mask, "[redacted", "redacted]",
	"\x1b", "\x1b[0m", `\u001b[0m`, "\u00a0", `\u00a0`, "Nov 23 17:21:39 h u[7]: ", "2025-11-23T17:21:39Z stdout P ", "2025-11-23T17:21:39Z stdout F ", "2025-11-23T17:21:39Z stderr P ",
}

// TestRedactionIsIdempotent: of any text, what came out comes out again as it is, and how the text
// was written changes nothing.
func TestRedactionIsIdempotent(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	for range 5000 {
		var b strings.Builder
		for range 1 + random.IntN(16) {
			b.WriteString(lineParts[random.IntN(len(lineParts))])
		}
		text := b.String()
		out, _ := clean(t, text, 4096)
		if again, _ := clean(t, out, 4096); again != out {
			t.Errorf("%q comes out as %q, and that as %q", text, out, again)
		}
		if pieces, _ := clean(t, text, 1); pieces != out {
			t.Errorf("%q comes out as %q, and byte by byte as %q", text, out, pieces)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%q comes out with an escape: %q", text, out)
		}
	}
}
