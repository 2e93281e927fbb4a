package nodemark_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestRepeatOffenderRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := nodemark.RepeatOffender{
		Machine: record.NodeIdentity{ProviderID: "m1"}, Since: at, Window: "1h0m0s", RequiresRelease: "s2",
		Repairs: []nodemark.CountedRepair{{Session: "s1", At: at.Add(-time.Hour)}, {Session: "s2", At: at}},
	}
	got, ok := nodemark.ParseRepeatOffender(l.Text())
	if diff := cmp.Diff(l, got); diff != "" || !ok {
		t.Errorf("read %v (-written +read):\n%s", ok, diff)
	}
	if n := l.Within(at); n != 1 {
		t.Errorf("%d repairs within its window, want 1", n)
	}
	if l.Window = ""; l.Within(at) != 2 {
		t.Errorf("%d repairs without a window, want 2", l.Within(at))
	}
	for _, broken := range []string{"", "{", "[]"} {
		if _, ok := nodemark.ParseRepeatOffender(broken); ok {
			t.Errorf("%q is read", broken)
		}
	}
}

// FuzzParseRepeatOffender: what a person wrote there ends no service.
func FuzzParseRepeatOffender(f *testing.F) {
	f.Add(`{"machine":{"uid":"u"},"since":"2026-01-02T03:04:05Z","repairs":[{"session":"s","at":"2026-01-02T03:04:05Z"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := nodemark.ParseRepeatOffender(text)
		if !ok {
			return
		}
		l.Within(time.Unix(0, 0))
		if _, again := nodemark.ParseRepeatOffender(l.Text()); !again {
			t.Errorf("%q is not read again", l.Text())
		}
	})
}

func TestRequiresRelease(t *testing.T) {
	kept := nodemark.RepeatOffender{RequiresRelease: "s1"}.Text()
	for name, tt := range map[string]struct {
		label, note, session string
		want                 bool
	}{
		"kept":              {"true", kept, "s1", true},
		"another session":   {"true", kept, "s2", false},
		"no session":        {"true", kept, "", false},
		"the label is off":  {"", kept, "s1", false},
		"a lemon, not kept": {"true", nodemark.RepeatOffender{}.Text(), "", false},
		"a person's label":  {"true", "", "s1", false},
		"somebody broke it": {"true", "{", "s1", false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{nodemark.RepeatOffenderLabel: tt.label},
			Annotations: map[string]string{nodemark.RepeatOffenderAnnotation: tt.note, nodemark.SessionAnnotation: tt.session},
		}}
		if got := nodemark.Read(node).RequiresRelease(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
