package redact

import (
	"bytes"
	"strings"
	"testing"
)

// planted are the forms in which a secret must not come out; <S> is the secret, <D> five dashes.
var planted = []string{
	"password=<S>", "Password: <S>", `password="<S>"`, `"password":"<S>"`, `{\"password\":\"<S>\"}`,
	"passwd=<S>", "DB_PASSWORD=<S>", "db_password_prod = <S>", "passphrase: <S>", "--password <S>", "--db-password=<S>",
	"token=<S>", "access_token=<S>", "TOKEN: <S>", "--token <S>", `"identitytoken": "<S>"`, "token => <S>",
	"secret=<S>", "client-secret: <S>", "AWS_SECRET_ACCESS_KEY=<S>", "aws_session_token = <S>", "api_key=<S>", "apiKey: '<S>'",
	"AccountKey=<S>", "credential=<S>", `"auth":"<S>"`,
	"Authorization: Bearer <S>", "authorization: Basic <S>", `-H "Authorization: token <S>"`, "Proxy-Authorization: Digest x <S>",
	"Authorization:[Bearer <S>]", "Bearer <S>", "bearer <S>", `Bearer "<S>"`,
	"https://user:<S>@registry.example.com/x", "postgres://user:<S>@db:5432/x?y=z", "https://:<S>@host", "https://<S>@host", "http://user:x/<S>@host",
	"https://example.com/x?sig=<S>", "https://example.com/x?a=b&X-Amz-Signature=<S>", "https://example.com/x?X-Goog-Signature=<S>&b=c",
	"AKIA<S>", "ASIA<S>", "eyJhbGciOi.<S>.<S>", "eyJ<S>.eyJ<S>.", "nvapi-<S>", "ghp_<S>", "github_pat_<S>", "glpat-<S>",
	"xoxb-<S>", "AIza<S><S>", "hf_<S>",
	"<D>BEGIN PRIVATE KEY<D>\n<S>\n<S>\n<D>END PRIVATE KEY<D>\n",
	"<D>BEGIN RSA PRIVATE KEY<D>\nProc-Type: 4\n\n<S>\n<D>END RSA PRIVATE KEY<D>\n",
	"Jan 1 host x: <D>BEGIN OPENSSH PRIVATE KEY<D>\nJan 1 host x: <S>\nJan 1 host x: <D>END OPENSSH PRIVATE KEY<D>\n",
	`key: "<D>BEGIN EC PRIVATE KEY<D>\n<S>\n<D>END EC PRIVATE KEY<D>\n"`,
}

// hidden has the alphabet of each form, and is found nowhere by chance.
const hidden = "ZQ9XK4JW7VHT2YBN8MPC"

// dashes are those around the names of keys.
const dashes = "-----"

// pem is a private key of lines.
func pem(lines string) string {
	return dashes + "BEGIN PRIVATE KEY" + dashes + "\n" + lines + dashes + "END PRIVATE KEY" + dashes + "\n"
}

// clean writes text to a Writer in pieces of the given length.
func clean(t testing.TB, text string, piece int) (string, *Writer) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for len(text) > 0 {
		n := min(piece, len(text))
		if _, err := w.Write([]byte(text[:n])); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String(), w
}

// TestASecretDoesNotComeOut: alone, behind and before other text, whatever the reads.
func TestASecretDoesNotComeOut(t *testing.T) {
	for _, form := range planted {
		text := strings.NewReplacer("<S>", hidden, "<D>", dashes).Replace(form)
		for _, around := range [][2]string{{"", ""}, {"Jan 1 host kubelet[7]: ", " and more"}, {"before\n", "\nafter"}, {`{"log":"`, `"}`}, {"token=", "&x"}, {`token="`, `"`}} {
			for _, piece := range []int{1, 2, 7, 4096} {
				out, w := clean(t, around[0]+text+around[1], piece)
				if strings.Contains(out, hidden) || !strings.Contains(out, Mask) || w.Redactions == 0 {
					t.Errorf("%q comes out as %q, %d redactions", around[0]+text+around[1], out, w.Redactions)
				}
			}
		}
	}
}

// TestAcrossTheBuffersOfReads: the secret is at each place around 4 KiB and 32 KiB.
func TestAcrossTheBuffersOfReads(t *testing.T) {
	for _, size := range []int{4 << 10, 32 << 10} {
		for shift := range 2 * len(hidden) {
			fill := strings.Repeat("x", 63) + "\n"
			text := strings.Repeat(fill, size/len(fill))
			text = text[:len(text)-shift] + " password=" + hidden + "\nrest\n"
			out, _ := clean(t, text, size)
			if strings.Contains(out, hidden) || !strings.HasSuffix(out, "password="+Mask+"\nrest\n") {
				t.Fatalf("%d before %d: %q", shift, size, out[max(0, len(out)-100):])
			}
		}
	}
}

// TestHarmlessTextIsNotMasked: text without a secret stays as it is, byte for byte.
func TestHarmlessTextIsNotMasked(t *testing.T) {
	for _, text := range []string{
		"", "\n", "\n\n", "no end", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n",
		"    Product Name : NVIDIA H100 80GB HBM3\n    GPU UUID : GPU-5b2e2c3e-3b53-4f46-a4f3-0d5d1d1d1d1d\n\tSerial Number : 1650000000000\n",
		"Failed password for root from 192.0.2.1 port 22 ssh2\n", "https://registry.example.com/v2/x/manifests/1?a=b\n", "user@host: Permission denied\n",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "\xff\xfe broken \x80 bytes\r\n", "MountVolume.SetUp failed for volume \"x\" : secret \"y\" not found\n",
	} {
		if out, w := clean(t, text, 3); out != text || w.Redactions > 0 {
			t.Errorf("%q comes out as %q, %d redactions", text, out, w.Redactions)
		}
	}
}

// TestBehindAKeyTheLogGoesOn, also if the key never ends.
func TestBehindAKeyTheLogGoesOn(t *testing.T) {
	out, w := clean(t, pem("MIIE\n")+"after\n", 5)
	if out != strings.Repeat(Mask+"\n", 3)+"after\n" || w.Redactions != 1 {
		t.Errorf("%q, %d", out, w.Redactions)
	}
	out, _ = clean(t, strings.TrimSuffix(pem(""), dashes+"END PRIVATE KEY"+dashes+"\n")+strings.Repeat("line\n", maxKeyLines), 4096)
	if strings.Count(out, Mask) != maxKeyLines || !strings.HasSuffix(out, "line\n") {
		t.Errorf("a key without an end hides %d lines", strings.Count(out, Mask))
	}
}

// TestLinesAreBounded in bytes and in secrets.
func TestLinesAreBounded(t *testing.T) {
	out, w := clean(t, strings.Repeat("x", maxLine)+"\n"+strings.Repeat("y", maxLine+1)+"password="+hidden+"\nnext\n", 4096)
	if !strings.HasPrefix(out, strings.Repeat("x", maxLine)+"\n[a line of") || !strings.HasSuffix(out, "removed]\nnext\n") || w.LongLines != 1 || cap(w.line) > 2*maxLine {
		t.Errorf("%q, %d, holds %d", out[maxLine:], w.LongLines, cap(w.line))
	}
	out, w = clean(t, strings.Repeat("token=a ", maxFinds)+"end\n", 4096)
	if strings.Count(out, Mask) != maxFinds || !strings.HasSuffix(out, "end\n") || w.Redactions != maxFinds {
		t.Errorf("%d secrets: %q", w.Redactions, out)
	}
	if out, _ := clean(t, strings.Repeat("token=a ", maxFinds+1)+"end\n", 4096); out != Mask+"\n" {
		t.Errorf("one secret more: %q", out)
	}
}

// TestLongSecretsAndManySigns: a secret longer than what is looked at, and lines that are
// nothing but signs.
func TestLongSecretsAndManySigns(t *testing.T) {
	for _, text := range []string{
		"password=" + strings.Repeat("x", window) + hidden, `password="` + strings.Repeat(`\"`, window) + hidden + `"`,
		"Bearer " + strings.Repeat("x", window-1) + hidden + " more", "AKIA" + strings.Repeat("A", window) + hidden,
		strings.Repeat("eyJ", 80_000) + "a.b" + hidden, strings.Repeat("://a:", 50_000) + hidden, strings.Repeat("token ", 40_000) + "=" + hidden,
	} {
		if out, _ := clean(t, text, 4096); strings.Contains(out, hidden) || !strings.Contains(out, Mask) {
			t.Errorf("%d bytes, %q..., come out as %d", len(text), text[:20], len(out))
		}
	}
}
