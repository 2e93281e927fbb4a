package checkpoint

import (
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
)

// deadLettersKey is the key of the ConfigMap's data that holds the dead letters.
const deadLettersKey = "dead-letters.json"

// Bounds of the dead letters; the oldest go first.
const (
	maxDeadLetters     = 100
	maxDeadLetterBytes = 64 << 10
)

// DeadLetter is an event that the connector rejected for good.
type DeadLetter struct {
	At     time.Time       `json:"at"`
	Reason string          `json:"reason"`
	Event  json.RawMessage `json:"event"`
}

// deadLetters are the newest ones.
type deadLetters []DeadLetter

// with is the dead letters with one more, within their bounds.
func (l deadLetters) with(e *protos.HealthEvent, reason string, at time.Time) deadLetters {
	event, err := protojson.Marshal(e)
	if err != nil {
		event = []byte("null") // it was decoded from the same form
	}
	out := append(slices.Clip(l), DeadLetter{at.UTC(), reason, event})
	size := 0
	for i, x := range slices.Backward(out) {
		size += len(x.Event) + len(x.Reason)
		if len(out)-i > maxDeadLetters || size > maxDeadLetterBytes {
			return out[i+1:]
		}
	}
	return out
}

// readDeadLetters reads them; what cannot be read is none.
func readDeadLetters(data map[string]string) deadLetters {
	var out deadLetters
	if json.Unmarshal([]byte(data[deadLettersKey]), &out) != nil {
		return nil
	}
	return out
}

// store writes them into the ConfigMap's data.
func (l deadLetters) store(data map[string]string) (map[string]string, error) {
	if len(l) == 0 {
		return data, nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return data, err //nolint:wrapcheck // the caller says what it was writing
	}
	if data == nil {
		data = map[string]string{}
	}
	data[deadLettersKey] = string(text)
	return data, nil
}

// rejectedRetryDelay is how long a report, or a recovery, of a match is not sent again after one
// was rejected.
const rejectedRetryDelay = 10 * time.Minute

// rejections are when events of a match were rejected last.
type rejections map[machine.Rejection]time.Time

// add notes a rejection.
func (r *rejections) add(k machine.Rejection, now time.Time) {
	if *r == nil {
		*r = rejections{}
	}
	if len(*r) >= machine.MaxEntries {
		for k := range *r {
			if !r.delayed(k, now) {
				delete(*r, k)
			}
		}
	}
	if len(*r) < machine.MaxEntries {
		(*r)[k] = now
	}
}

// delayed reports whether such an event is not sent again yet.
func (r *rejections) delayed(k machine.Rejection, now time.Time) bool {
	at, known := (*r)[k]
	return known && now.Sub(at) < rejectedRetryDelay
}
