package checkpoint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestDeadLettersAreBounded, by number and by bytes; the newest stay, and what is written
// is read again.
func TestDeadLettersAreBounded(t *testing.T) {
	for size, want := range map[int]int{10: maxDeadLetters, 8 << 10: 7, 100 << 10: 0} {
		var l deadLetters
		for i := range 3 * maxDeadLetters {
			l = l.with(&protos.HealthEvent{Id: fmt.Sprint(i), Message: strings.Repeat("x", size)}, "because", noon)
		}
		if len(l) != want {
			t.Errorf("%d dead letters of %d bytes, want %d", len(l), size, want)
		}
		if want == 0 {
			continue
		}
		data, err := l.store(nil)
		if err != nil {
			t.Fatal(err)
		}
		read := readDeadLetters(data)
		if len(read) != want || !strings.Contains(string(read[want-1].Event), fmt.Sprintf("%q", fmt.Sprint(3*maxDeadLetters-1))) {
			t.Errorf("%d are read again, the newest is %+v", len(read), read)
		}
	}
	if l := readDeadLetters(map[string]string{deadLettersKey: "{"}); l != nil {
		t.Errorf("of damaged data %+v is read", l)
	}
}

// TestRejectionsAreBounded: they end, and there are not more of them than of faults.
func TestRejectionsAreBounded(t *testing.T) {
	var r rejections
	key := func(i int) machine.Rejection {
		return machine.Rejection{Key: machine.Key{Policy: "p", Type: "v1/Node", Object: fmt.Sprint(i)}}
	}
	for i := range machine.MaxEntries + 10 {
		r.add(key(i), noon)
	}
	if len(r) != machine.MaxEntries || !r.delayed(key(0), noon.Add(rejectedRetryDelay-time.Second)) || r.delayed(key(0), noon.Add(rejectedRetryDelay)) {
		t.Errorf("%d rejections; the first one is held for another time than %s", len(r), rejectedRetryDelay)
	}
	if r.add(key(-1), noon.Add(rejectedRetryDelay)); len(r) != 1 || !r.delayed(key(-1), noon.Add(rejectedRetryDelay)) {
		t.Errorf("%d rejections after their time", len(r))
	}
}
