package redact

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzRedact plants secrets of a form into any text, and reads it in any pieces.
func FuzzRedact(f *testing.F) {
	all := forms(f)
	for i := range all {
		f.Add("Jan 1 host unit[1]: ", " tail\n", uint16(i), uint64(i))
	}
	f.Add(`token="`, `"\`, uint16(4), uint64(2))
	f.Add("-----BEGIN x PRIVATE KEY-----\n", "-----END ", uint16(30), uint64(3))
	f.Add("- name: PASSWORD\n", "\x1b[", uint16(30), uint64(3))
	f.Add("password: |\n  a\n", "\\n\\u001b[0m", uint16(31), uint64(4))
	f.Add("2025-11-23T17:21:39Z stdout P a", "2025-11-23T17:21:39Z stdout F b", uint16(32), uint64(5))
	f.Fuzz(func(t *testing.T, before, after string, which uint16, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		form := all[int(which)%len(all)].line
		planted, secrets := plant(form, random)
		text := before + "\n" + planted + "\n" + after
		if seed%2 == 0 && !strings.Contains(planted, "\n") && !strings.Contains(planted, "- ") && unchanged(before, planted) {
			text = before + " " + planted + " " + after
		}
		out := read(t, text, random)
		for _, s := range secrets {
			if part := left(s, out); part != "" && !strings.Contains(before+after, part) {
				t.Errorf("%q of %q in %q comes out as %q", part, planted, text, out)
			}
		}
		if again := read(t, out, random); again != out {
			t.Errorf("%q comes out as %q, and that as %q", text, out, again)
		}
	})
}

// unchanged reports whether what is before a text leaves it as it is: an escape sequence that
// begins there may take its begin.
func unchanged(before, planted string) bool {
	whole, ok := plain([]byte(before + " " + planted))
	own, _ := plain([]byte(planted))
	return ok && bytes.HasSuffix(whole, own)
}

// read writes a text to a Writer in pieces.
func read(t *testing.T, text string, random *rand.Rand) string {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for len(text) > 0 {
		n := min(1+random.IntN(40), len(text))
		if _, err := w.Write([]byte(text[:n])); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
