package redact

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

const kubelet = "Nov 23 17:21:39.123456 gpu-1 kubelet[1234]: I1123 17:21:39.123456 1234 reconciler.go:10] \"operationExecutor.VerifyControllerAttachedVolume started for volume\" (UniqueName: \"kubernetes.io/projected/x-kube-api-access\") pod=\"default/"

// BenchmarkWriter, beside a copy of the same lines.
func BenchmarkWriter(b *testing.B) {
	corpus, err := os.ReadFile("testdata/unchanged.txt")
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, text string }{
		{"plain", strings.Repeat(kubelet+"x\" key=a\n", 1000)},
		{"token", strings.Repeat(kubelet+"token-x\" key=a\n", 1000)},
		{"secret", strings.Repeat(kubelet+"password=x token=y\" key=a\n", 1000)},
		{"colors", strings.Repeat("\x1b[36m"+kubelet+"\x1b[0mx\" key=a\n", 1000)},
		{"JSON", strings.Repeat(`{"log":"{\"level\":\"info\",\"ts\":\"2025-11-23T17:21:39Z\",\"msg\":\"a stack\\n\\tmain.go:12\\n\\tproc.go:7\",\"node\":\"gpu-1\"}\n","stream":"stdout"}`+"\n", 1000)},
		{"corpus", strings.Repeat(string(corpus), 10)},
	} {
		b.Run(c.name+"/copy", func(b *testing.B) { run(b, c.text, plainCopy) })
		b.Run(c.name+"/redact", func(b *testing.B) {
			run(b, c.text, func(text []byte) {
				w := NewWriter(io.Discard)
				_, _ = w.Write(text)
			})
		})
	}
}

func run(b *testing.B, text string, do func(text []byte)) {
	all := []byte(text)
	b.SetBytes(int64(len(all)))
	b.ReportAllocs()
	for b.Loop() {
		do(all)
	}
}

// plainCopy is the baseline: the same lines, copied.
func plainCopy(text []byte) {
	w := bufio.NewWriter(struct{ io.Writer }{io.Discard})
	for line := range bytes.Lines(text) {
		_, _ = w.Write(line)
	}
	_ = w.Flush()
}
