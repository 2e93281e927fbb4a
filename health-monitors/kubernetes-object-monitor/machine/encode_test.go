package machine

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// packed is a state as it is written.
func packed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestContradictingStateIsAnError: a state that decompresses and is not valid. An empty
// tracker in its place would forget the open faults.
func TestContradictingStateIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"half a state":              {`{"version":1,`, "decoding the state"},
		"a later version":           {`{"version":2,"epoch":"e"}`, "state of version 2: written by a newer version"},
		"no version":                {`{"epoch":"e"}`, `version 0 or epoch "e" is unknown`},
		"no epoch":                  {`{"version":1}`, `version 1 or epoch "" is unknown`},
		"an event that is none":     {`{"version":1,"epoch":"e","waiting":[{"metadata":{"seq":"1"}},{"no":"field"}]}`, "decoding pending event 1"},
		"an event without a number": {`{"version":1,"epoch":"e","waiting":[{"metadata":{}}]}`, "decoding pending event 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := Decode(packed(t, c.text)); b != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want %q", b, err, c.want)
			}
		})
	}
}

// TestEventsWaitInTheOrderOfTheirNumbers: whatever their order in the state.
func TestEventsWaitInTheOrderOfTheirNumbers(t *testing.T) {
	b, err := Decode(packed(t, `{"version":1,"epoch":"e","last":12,"waiting":[
		{"metadata":{"`+record.MetadataSeq+`":"12"}}, {"metadata":{"`+record.MetadataSeq+`":"3"}}, {"metadata":{"`+record.MetadataSeq+`":"7"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{3, 7, 12} {
		if got := b.Waiting()[i].Seq; got != want {
			t.Errorf("event %d waits at %d, want %d", got, i, want)
		}
	}
}

// TestAnEventThatCannotBeWritten is named, and no state is written without it.
func TestAnEventThatCannotBeWritten(t *testing.T) {
	b := New("epoch")
	for i, message := range []string{"broken", "broken \xff"} {
		s := resultOf(Matched, "P", named("node-", 8, i), "n")
		s.Wording.Message = message
		if _, err := b.Observe(s, v7); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := b.Encode(); data != nil || err == nil || !strings.Contains(err.Error(), "encoding event 2") {
		t.Errorf("got %d bytes, %v", len(data), err)
	}
}

// TestARunThatGaveNothingIsNotNamed: leaders that come and go without an event leave
// one run behind, the last one that gave a number.
func TestARunThatGaveNothingIsNotNamed(t *testing.T) {
	l := &trackerRun{tracker: New("epoch")}
	see := func(object string) (run, before string) {
		if _, err := l.tracker.Observe(resultOf(Matched, "P", object, "node-1"), l.id); err != nil {
			t.Fatal(err)
		}
		w := l.tracker.Waiting()
		return record.FromProto(w[len(w)-1].Event).Runs()
	}
	first, _ := see("a")
	for range 3 {
		l.restart(t)
	}
	second, before := see("b")
	if second == first || before != first {
		t.Errorf("run %q is behind %q, want behind %q alone", second, before, first)
	}
}

// TestWithoutAnIDNothingIsDecided: what was seen is decided when it is seen again.
func TestWithoutAnIDNothingIsDecided(t *testing.T) {
	b, none := New("epoch"), errors.New("no random numbers")
	s := resultOf(Matched, "P", "node-1", "node-1")
	s.Fault.Codes = []string{"A", "B"}
	asked := 0
	for _, fails := range []int{1, 2} { // at the first event, and at the second
		asked = 0
		_, err := b.Observe(s, func() (string, error) {
			if asked++; asked == fails {
				return "", none
			}
			return v7()
		})
		if !errors.Is(err, none) || !strings.Contains(err.Error(), "generating an event ID") {
			t.Errorf("got %v", err)
		}
		if len(b.Open()) > 0 || len(b.Waiting()) > 0 {
			t.Errorf("%v are open, %d events wait", b.Open(), len(b.Waiting()))
		}
	}
	if d, err := b.Observe(s, v7); err != nil || d.Reason != Began || len(b.Waiting()) != 2 || b.Waiting()[0].Seq != 1 {
		t.Errorf("seen again: %+v, %v, events %v", d, err, b.Waiting())
	}
}
