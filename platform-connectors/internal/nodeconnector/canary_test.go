package nodeconnector

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// askedAt is an id of that time.
func askedAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id.String()
}

func TestWhatIsAsked(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id := askedAt(now.Add(-time.Minute))
	for name, tc := range map[string]struct {
		value, sent string
		want        bool
	}{
		"now":                 {id, "", true},
		"another before":      {id, askedAt(now), true},
		"sent":                {id, id, false},
		"nothing":             {"", "", false},
		"no id":               {"x", "", false},
		"an id without time":  {uuid.NewString(), "", false},
		"in another spelling": {"{" + id + "}", "", false},
		"left since long":     {askedAt(now.Add(-11 * time.Minute)), "", false},
		"of the future":       {askedAt(now.Add(11 * time.Minute)), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodemark.CanaryAnnotation: tc.value}}}
			c := Canary{Node: func() *corev1.Node { return node }, Clock: testclock.NewFakePassiveClock(now), sent: tc.sent}
			if got, ok := c.asked(); ok != tc.want || ok && got != tc.value {
				t.Errorf("%q, %t", got, ok)
			}
		})
	}
	if _, ok := (&Canary{Node: func() *corev1.Node { return nil }}).asked(); ok {
		t.Error("a Node that was not seen asks for one")
	}
}
