package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSkipsAreBounded: those that are gone make space for others.
func TestSkipsAreBounded(t *testing.T) {
	s := NewSkips(nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	fill := func(name string) {
		for i := range maxSkips + 10 {
			s.note("/apis/g/v1/things", metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "Thing"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, i), ResourceVersion: "1"},
			}, errors.New("x"))
		}
	}
	fill("a")
	if got := testutil.ToFloat64(s); got != maxSkips || len(s.reported) != maxSkips {
		t.Errorf("%v objects are counted, %d remembered, want %d", got, len(s.reported), maxSkips)
	}
	s.begin("/apis/g/v1/things")
	fill("b")
	if got := testutil.ToFloat64(s); got != maxSkips || len(s.reported) != maxSkips {
		t.Errorf("%v other objects are counted, %d remembered, want %d", got, len(s.reported), maxSkips)
	}
}
