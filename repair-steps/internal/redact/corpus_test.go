package redact

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// form is one way in which a secret is logged, of testdata/planted.txt.
type form struct{ name, source, line string }

// forms reads testdata/planted.txt.
func forms(t testing.TB) (all []form) {
	t.Helper()
	var f form
	for _, line := range lines(t, "testdata/planted.txt") {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			f.name, f.source, ok = strings.Cut(head, " | ")
			if !ok || f.source == "" {
				t.Fatalf("form %q names no source", head)
			}
			continue
		}
		f.line = line
		all = append(all, f)
	}
	return all
}

// lines of a file of testdata, without empty ones and comments.
func lines(t testing.TB, file string) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if s.Text() != "" && !strings.HasPrefix(s.Text(), "# ") {
			all = append(all, s.Text())
		}
	}
	return all
}

var (
	placeholder = regexp.MustCompile(`\{([a-z0-9]+) (\d+)\}|\{(basic|pem|login)\}`)
	characters  = strings.NewReplacer("{nl}", "\n", "{esc}", "\x1b", "{bel}", "\a", "{nbsp}", "\u00a0", "{zwsp}", "\u200b", "{nul}", "\x00",
		"{d5}", "-----")
	alphabets = map[string]string{
		"digits": "0123456789", "hex": "0123456789abcdef", "letters": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
		"lower": "abcdefghijklmnopqrstuvwxyz0123456789", "alnum": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
		"base64": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", "base64url": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-",
		"pw": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&*+./:;<=>?@^_|~-",
	}
)

// plant puts new secrets into a form.
func plant(line string, random *rand.Rand) (text string, secrets []string) {
	of := func(alphabet string, n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	text = placeholder.ReplaceAllStringFunc(line, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		n, _ := strconv.Atoi(m[2])
		var s, user string
		switch m[3] {
		case "login":
			s, user = of(alphabets["alnum"], 12), "admin:"
		case "basic":
			s = base64.StdEncoding.EncodeToString([]byte("admin:" + of(alphabets["alnum"], 14)))
		case "pem":
			s = base64.StdEncoding.EncodeToString([]byte(dashes + "BEGIN RSA PRIVATE KEY" + dashes + "\n" + of(alphabets["base64"], 256) + "\n" + dashes + "END RSA PRIVATE KEY" + dashes + "\n"))
		default:
			s = of(alphabets[m[1]], n)
		}
		secrets = append(secrets, s)
		return user + s
	})
	return characters.Replace(text), secrets
}

// around are the ways in which a line of a program comes into a log.
var around = map[string]func(text string) string{
	"alone":      func(text string) string { return text },
	"in journal": func(text string) string { return each(text, "Nov 23 17:21:39.123456 gpu-1 unit[7]: ", "") },
	"of container": func(text string) string {
		return each(text, "2025-11-23T17:21:39.123456789Z stdout F ", "")
	},
	"indented": func(text string) string { return each(text, "        ", "") },
	"in error": func(text string) string {
		return each(text, `E1123 17:21:39.123456    1234 x.go:10] it failed: `, ": unauthorized")
	},
	"in JSON": func(text string) string {
		return fmt.Sprintf(`{"level":"info","msg":%s,"node":"gpu-1","password":""}`, quote(text))
	},
	"in JSON in JSON": func(text string) string {
		return fmt.Sprintf(`{"log":%s,"stream":"stdout"}`, quote(fmt.Sprintf(`{"msg":%s}`, quote(text))))
	},
	"in Go": func(text string) string { return fmt.Sprintf("failed: err=%q", text) },
	"in colors": func(text string) string {
		if strings.Contains(text, "\x1b") || strings.Contains(text, "[36m") {
			return text // it has its own
		}
		return colored(text)
	},
	"in CRLF": func(text string) string {
		return each(text, "", "\r")
	},
	"with Unicode": func(text string) string { return each(strings.ReplaceAll(text, " ", "\u00a0"), "µ ", " é") },
}

// colored is a text with a color at each third character.
func colored(text string) string {
	var b strings.Builder
	for i, r := range []rune(text) {
		if i%3 == 1 {
			b.WriteString("\x1b[1;36m")
		}
		b.WriteRune(r)
	}
	return b.String() + "\x1b[0m"
}

func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// each puts text around each line.
func each(text, before, after string) string {
	return before + strings.ReplaceAll(text, "\n", after+"\n"+before) + after
}

// left is the longest part of a secret that is in a text, of at least 8 bytes or half of
// it.
func left(secret, text string) string {
	n := min(8, max(4, len(secret)/2))
	for i := 0; i+n <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+n]) {
			return secret[i : i+n]
		}
	}
	return ""
}

// TestPlantedSecrets: none comes out, whole or in a part, of any form in any surrounding, and what
// came out comes out again as it is.
func TestPlantedSecrets(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	all, names, planted := forms(t), map[string]bool{}, 0
	for _, f := range all {
		names[f.name] = true
		for _, how := range slices.Sorted(maps.Keys(around)) {
			if how != "alone" && strings.HasPrefix(f.line, "2025-") || strings.Contains(f.line, "{nl}") && (how == "in error" || how == "with Unicode") {
				continue // it has its prefix, or would be no longer what it is
			}
			text, secrets := plant(f.line, random)
			text = around[how](text)
			planted += len(secrets)
			out, _ := clean(t, text+"\nthe next line stays\n", 4096)
			for _, s := range secrets {
				if part := left(s, out); part != "" {
					t.Errorf("%s, %s: %q of %q comes out as %q", f.name, how, part, text, out)
				}
			}
			if !strings.HasSuffix(out, "the next line stays\n") {
				t.Errorf("%s, %s: %q takes the next line: %q", f.name, how, text, out)
			}
			if again, _ := clean(t, out, 4096); again != out {
				t.Errorf("%s, %s: %q comes out as %q and then %q", f.name, how, text, out, again)
			}
		}
	}
	if len(all) < 200 || len(names) < 40 {
		t.Errorf("%d ways of %d forms; at least 200 of 40 are promised", len(all), len(names))
	}
	t.Logf("%d secrets in %d ways of %d forms", planted, len(all), len(names))
}

// TestLookalikesAreNotMasked: lines that a person needs, alone and as one log.
func TestLookalikesAreNotMasked(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 2))
	n, log := 0, ""
	for _, line := range lines(t, "testdata/unchanged.txt") {
		if strings.HasPrefix(line, "== ") {
			if !strings.Contains(line, " | ") {
				t.Errorf("%q names no source", line)
			}
			continue
		}
		n++
		line, _ = plant(line, random)
		log += line + "\n"
		if out, secrets := Line([]byte(line)); string(out) != line || secrets > 0 {
			t.Errorf("%q comes out as %q, %d secrets", line, out, secrets)
		}
	}
	if out, w := clean(t, log, 4096); out != log || w.Redactions > 0 {
		for i, line := range strings.Split(out, "\n") {
			if want := strings.Split(log, "\n")[i]; want != line {
				t.Errorf("in the log, %q comes out as %q", want, line)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d lines; at least 60 are promised", n)
	}
	t.Logf("%d lines", n)
}
