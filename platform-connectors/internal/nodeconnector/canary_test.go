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

// requestIDAt is an id of that time.
func requestIDAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id.String()
}

func TestRequestedCanary(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id := requestIDAt(now.Add(-time.Minute))
	for name, tc := range map[string]struct {
		value, sent string
		want        bool
	}{
		"now":                 {id, "", true},
		"another before":      {id, requestIDAt(now), true},
		"sent":                {id, id, false},
		"nothing":             {"", "", false},
		"no id":               {"x", "", false},
		"an id without time":  {uuid.NewString(), "", false},
		"in another spelling": {"{" + id + "}", "", false},
		"left since long":     {requestIDAt(now.Add(-11 * time.Minute)), "", false},
		"of the future":       {requestIDAt(now.Add(11 * time.Minute)), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodemark.CanaryAnnotation: tc.value}}}
			c := Canary{Node: func() *corev1.Node { return node }, Clock: testclock.NewFakePassiveClock(now), sent: tc.sent}
			if got, ok := c.requested(); ok != tc.want || ok && got != tc.value {
				t.Errorf("%q, %t", got, ok)
			}
		})
	}
	if _, ok := (&Canary{Node: func() *corev1.Node { return nil }}).requested(); ok {
		t.Error("a Node that was not seen asks for one")
	}
}
