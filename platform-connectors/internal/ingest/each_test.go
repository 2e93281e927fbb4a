package ingest

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// strict is an authenticator with a policy.
type strict struct {
	*authn.Authenticator
	wide bool
}

func (s strict) Enter(context.Context) (authz.Caller, bool, error) {
	return authz.Caller{}, s.wide, nil
}

func newStrict(t *testing.T, agents ...authz.Agent) strict {
	t.Helper()
	owners, err := authn.OpenOwners(t.TempDir()+"/owners.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	return strict{Authenticator: &authn.Authenticator{Policy: authz.Policy{Node: "gpu-7", Agents: agents}, Owners: owners}}
}

// outcomes are the results, a letter each, and the problems.
func outcomes(out *protos.HealthEventResults) (letters string, problems []string) {
	for _, r := range out.GetResults() {
		letters += strings.TrimPrefix(r.GetOutcome().String(), "HEALTH_EVENT_OUTCOME_")[:3] + " "
		if r.GetProblem() != "" {
			problems = append(problems, r.GetProblem())
		}
	}
	return strings.TrimSpace(letters), problems
}

// TestEachEventHasItsAnswer: what is wrong with one is reported for that one, and the others
// are accepted.
func TestEachEventHasItsAnswer(t *testing.T) {
	named := func(agent, check string) *protos.HealthEvent {
		return event(func(p *protos.HealthEvent) { p.Agent, p.CheckName = agent, check })
	}
	agents := append(authz.DefaultAgents(), authz.Agent{Name: "owned", Account: "system:serviceaccount:a:b"})
	for name, tt := range map[string]struct {
		events   []*protos.HealthEvent
		want     string
		problem  string // of the last that is not accepted
		accepted int
		reasons  map[string]float64
	}{
		"all":   {[]*protos.HealthEvent{event(), event()}, "ACC ACC", "", 2, nil},
		"empty": {nil, "", "", 0, nil},
		"a name of another agent": {
			[]*protos.HealthEvent{named("kubernetes-object-monitor", "Good"), named("kubernetes-object-monitor", "GpuBroken"), named("kubernetes-object-monitor", "Good")},
			"ACC REJ ACC", `check "GpuBroken" belongs to agent "gpu-health-monitor"`, 2, map[string]float64{"check-of-another-agent": 1},
		},
		"another account's agent": {
			[]*protos.HealthEvent{event(), named("owned", "Any")}, "ACC RET", `agent "owned" belongs to system:serviceaccount:a:b`, 1,
			map[string]float64{"agent-of-another-account": 1},
		},
		"malformed ones of every kind": {
			[]*protos.HealthEvent{
				event(func(p *protos.HealthEvent) { p.CheckName = "" }), event(),
				event(func(p *protos.HealthEvent) { p.NodeName = "gpu-8" }),
				event(func(p *protos.HealthEvent) { p.GeneratedTimestamp = nil }), event(func(p *protos.HealthEvent) { p.Id = "x" }),
				event(func(p *protos.HealthEvent) { p.Agent = strings.Repeat("a", admission.MaxName+1) }),
			},
			"REJ ACC REJ REJ REJ REJ", "agent: has 254 bytes, at most 253", 1,
			map[string]float64{"missing": 2, "foreign-node": 1, "malformed": 1, "too-long": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			d := newServer(m)
			d.Authenticator = newStrict(t, agents...)
			rejected := 0
			d.Rejected = func(_ string, n int) { rejected += n }
			out, err := protos.NewPlatformConnectorClient(serve(t, d)).HealthEventOccurredV2(t.Context(), &protos.HealthEvents{Events: tt.events})
			if err != nil {
				t.Fatal(err)
			}
			got, problems := outcomes(out)
			if got != tt.want {
				t.Errorf("%s, want %s: %q", got, tt.want, problems)
			}
			if tt.problem != "" && (len(problems) == 0 || !strings.Contains(problems[len(problems)-1], tt.problem)) {
				t.Errorf("problems %q, want %q", problems, tt.problem)
			}
			if len(m.records) != tt.accepted || testutil.ToFloat64(d.Metrics.accepted.WithLabelValues("PROCESS")) != float64(tt.accepted) {
				t.Errorf("%d records spooled, want %d", len(m.records), tt.accepted)
			}
			for reason, n := range tt.reasons {
				if got := testutil.ToFloat64(d.Metrics.refused.WithLabelValues(reason)); got != n {
					t.Errorf("%s is counted %v times, want %v", reason, got, n)
				}
			}
			if want := strings.Count(tt.want, "REJ"); rejected != want {
				t.Errorf("%d events were reported as rejected, want %d", rejected, want)
			}
		})
	}
}

// TestABatchThatCannotBeTakenIsRefusedWhole: nothing is known to be accepted.
func TestABatchThatCannotBeTakenIsRefusedWhole(t *testing.T) {
	for err, code := range map[error]codes.Code{spool.ErrFull: codes.ResourceExhausted, spool.ErrClosed: codes.Unavailable, context.DeadlineExceeded: codes.DeadlineExceeded} {
		d := newServer(&memory{err: err})
		_, got := d.HealthEventOccurredV2(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{event(), event(func(p *protos.HealthEvent) { p.CheckName = "" })}})
		if status.Code(got) != code {
			t.Errorf("%v: answer %v, want %s", err, got, code)
		}
	}
	d := newServer(&memory{})
	if _, err := d.HealthEventOccurredV2(t.Context(), &protos.HealthEvents{Events: make([]*protos.HealthEvent, admission.MaxEvents+1)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too many events: %v", err)
	}
}

// TestRefusedEventIsRejectedAlone: of the events of a cluster-wide publisher only the refused
// one is rejected.
func TestRefusedEventIsRejectedAlone(t *testing.T) {
	taken := "01958a5c-0000-7000-8000-000000000001"
	d := newServer(&memory{})
	d.Authenticator = wide{}
	d.Direct = &memory{err: &forwarder.Taken{ID: taken, Records: 1, Refused: map[string]string{taken: "its id is stored with other content"}}}
	d.IdentityOf = func(context.Context, string) record.NodeIdentity { return record.NodeIdentity{} }
	out, err := d.HealthEventOccurredV2(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{
		event(), event(func(p *protos.HealthEvent) { p.Id = taken }), event(func(p *protos.HealthEvent) { p.NodeName = "gpu-8" }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, problems := outcomes(out)
	if diff := cmp.Diff([]string{"its id is stored with other content"}, problems); got != "ACC REJ ACC" || diff != "" {
		t.Errorf("%s %q", got, problems)
	}
	if n := testutil.ToFloat64(d.Metrics.accepted.WithLabelValues("PROCESS")); n != 2 {
		t.Errorf("%v events are counted as accepted, want 2", n)
	}
}
