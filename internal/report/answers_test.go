package report_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
)

func result(outcome protos.HealthEventOutcome, problem string) *protos.HealthEventResult {
	return &protos.HealthEventResult{Outcome: outcome, Problem: problem}
}

var accepted = result(protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED, "")

// TestARejectedEventBlocksNoOther: however many there are, and wherever they wait.
func TestARejectedEventBlocksNoOther(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	c.Answer(func(e *protos.HealthEvent) *protos.HealthEventResult {
		if strings.HasPrefix(e.GetMessage(), "poison") {
			return result(protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED, `check "GpuBroken" belongs to agent "gpu-health-monitor"`)
		}
		return accepted
	})
	for range 250 {
		appendMessages(t, b, "poison")
	}
	appendMessages(t, b, "good 0", "poison", "good 1")
	began := time.Now()
	r := publish(t, b, c, "")
	drained(t, b)
	t.Logf("2 events behind and between 251 rejected ones were published within %s", time.Since(began))
	if diff := cmp.Diff([]string{"good 0", "good 1"}, texts(c.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	letters, err := b.DeadLetters()
	if err != nil || len(letters) == 0 || !strings.Contains(letters[0].Reason, "belongs to agent") {
		t.Errorf("letters %+v, error %v", letters, err)
	}
	if got := value(t, r, "test_dead_letters_total"); got != 251 {
		t.Errorf("counted %v dead letters, want 251", got)
	}
}

// TestAnEventThatIsToBeSentAgainBlocksNoOther: it stays, is sent again behind the others,
// and goes out as soon as it is accepted. An answer of a newer version is one of these.
func TestAnEventThatIsToBeSentAgainBlocksNoOther(t *testing.T) {
	for _, outcome := range []protos.HealthEventOutcome{protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_RETRY, 42} {
		t.Run(outcome.String(), func(t *testing.T) {
			c := reporttest.Start(t)
			b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
			c.Answer(func(e *protos.HealthEvent) *protos.HealthEventResult {
				if strings.HasPrefix(e.GetMessage(), "later") {
					return result(outcome, "not now")
				}
				return accepted
			})
			for range 120 {
				appendMessages(t, b, "later")
			}
			appendMessages(t, b, "now 0", "now 1")
			publish(t, b, c, "")
			await(t, "the events behind", func() bool { return len(c.Events()) >= 2 })
			appendMessages(t, b, "now 2")
			await(t, "an event that came later", func() bool { return len(c.Events()) >= 3 })
			await(t, "their removal", func() bool { return b.Stats().Entries == 120 })
			if got := b.Stats(); got.Dead != 0 {
				t.Errorf("%d are dead letters, want none", got.Dead)
			}
			c.Answer(nil)
			drained(t, b)
			want := append([]string{"now 0", "now 1", "now 2"}, slices.Repeat([]string{"later"}, 120)...)
			if diff := cmp.Diff(want, texts(c.Events())); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAConnectorOfAnOlderVersion answers for whole batches. What it refuses with
// PermissionDenied stays, because that may be about the publisher; it blocks no other.
func TestAConnectorOfAnOlderVersion(t *testing.T) {
	for code, want := range map[codes.Code]struct{ waiting, dead int }{codes.PermissionDenied: {waiting: 120}, codes.InvalidArgument: {dead: 120}} {
		t.Run(code.String(), func(t *testing.T) {
			c := reporttest.Start(t)
			c.Older()
			b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
			c.Refuse(func(in *protos.HealthEvents) error {
				for _, e := range in.GetEvents() {
					if e.GetMessage() == "foreign" {
						return status.Error(code, "check of another agent")
					}
				}
				return nil
			})
			for range 120 {
				appendMessages(t, b, "foreign")
			}
			appendMessages(t, b, "good")
			publish(t, b, c, "")
			await(t, "the event behind", func() bool { return len(c.Events()) > 0 })
			await(t, "an empty or a settled outbox", func() bool { s := b.Stats(); return s.Entries == want.waiting && s.Dead == want.dead })
			c.Refuse(nil)
			drained(t, b)
			if got := len(c.Events()); got != 1+want.waiting {
				t.Errorf("%d events came, want %d", got, 1+want.waiting)
			}
		})
	}
}

// TestARequestThatCannotBeDecodedIsHalved, until the event is found that is to blame.
func TestARequestThatCannotBeDecodedIsHalved(t *testing.T) {
	c := reporttest.Start(t)
	requests := 0
	c.Refuse(func(in *protos.HealthEvents) error {
		requests++
		for _, e := range in.GetEvents() {
			if e.GetMessage() == "event 77" {
				return status.Error(codes.InvalidArgument, "the request is not a HealthEvents message")
			}
		}
		return nil
	})
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	appendMessages(t, b, numbered(100)...)
	publish(t, b, c, "")
	drained(t, b)
	if got := b.Stats(); got.Dead != 1 || len(c.Events()) != 99 {
		t.Errorf("%d events came and %d are dead letters, want 99 and 1", len(c.Events()), got.Dead)
	}
	if requests > 16 {
		t.Errorf("%d requests, want at most 16", requests)
	}
}

// TestAnAnswerForOtherEvents is none: everything is sent again.
func TestAnAnswerForOtherEvents(t *testing.T) {
	c := reporttest.Start(t)
	conn, err := report.Dial(c.Target(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = report.Sender{Connector: short{protos.NewPlatformConnectorClient(conn)}}.Send(t.Context(), []*protos.HealthEvent{{Message: "a"}, {Message: "b"}})
	if err == nil || !strings.Contains(err.Error(), "returned results for 1 of 2 events") {
		t.Errorf("error %v", err)
	}
}

// short is a connector that forgets the last answer.
type short struct{ protos.PlatformConnectorClient }

func (s short) HealthEventOccurredV2(ctx context.Context, in *protos.HealthEvents, o ...grpc.CallOption) (*protos.HealthEventResults, error) {
	out, err := s.PlatformConnectorClient.HealthEventOccurredV2(ctx, in, o...)
	if err == nil {
		out.Results = out.GetResults()[1:]
	}
	return out, err
}
