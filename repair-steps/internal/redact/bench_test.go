package redact

import (
	"io"
	"strings"
	"testing"
)

func BenchmarkWriter(b *testing.B) {
	for name, tail := range map[string]string{"plain": "x", "token": "token-x", "secret": "password=x token=y"} {
		b.Run(name, func(b *testing.B) {
			text := []byte(strings.Repeat("Nov 23 17:21:39.123456 gpu-1 kubelet[1234]: I1123 17:21:39.123456 1234 reconciler.go:10] \"operationExecutor.VerifyControllerAttachedVolume started for volume\" (UniqueName: \"kubernetes.io/projected/x-kube-api-access\") pod=\"default/"+tail+"\" key=a\n", 1000))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w := NewWriter(io.Discard)
				_, _ = w.Write(text)
			}
		})
	}
}
