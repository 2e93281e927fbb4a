package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// shelf is a store of one node's records.
type shelf []record.Record

func (s *shelf) List(_ context.Context, q store.Query) (out []record.Record, _ error) {
	for _, r := range *s {
		if q.Selector.Matches(r) && r.Append > q.After {
			out = append(out, r)
		}
	}
	return out, nil
}

// add stores a fault that is not fatal, unless edit states otherwise.
func (s *shelf) add(at time.Time, message string, edit ...func(*record.Record)) {
	r := record.Record{ID: strconv.Itoa(len(*s)), Append: int64(len(*s) + 1), CreatedAt: at, Node: record.NodeIdentity{ProviderID: "p1"}, Event: record.Event{
		NodeName: "gpu-1", Agent: "kubernetes-object-monitor", CheckName: "Disk", Message: message, RecommendedAction: record.ActionNone, ProcessingStrategy: record.Process,
	}}
	for _, e := range edit {
		e(&r)
	}
	*s = append(*s, r)
}

// TestEventsOfFaultsThatAreNotFatal: each makes a Warning of its node, those with the same
// content one together. What was reported is not reported again, by this leader or the next,
// and what must not be reported never is.
func TestEventsOfFaultsThatAreNotFatal(t *testing.T) {
	clock := testkit.NewClock()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "u1"}, Spec: corev1.NodeSpec{ProviderID: "p1"}})
	s := &shelf{}
	lead := func() *Conditions {
		return &Conditions{Agents: []string{"kubernetes-object-monitor"}, Records: s, Client: client, Clock: clock, Log: slog.New(slog.DiscardHandler),
			Metrics: sink.NewMetrics(prometheus.NewRegistry())}
	}
	reported := func() (out []string) {
		list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			out = append(out, fmt.Sprint(e.Count, " ", e.Type, " ", e.Source.Component, " ", e.Reason, " ", e.Message))
		}
		slices.Sort(out)
		return out
	}
	expect := func(o *Conditions, want ...string) {
		t.Helper()
		if err := o.Handle(t.Context(), "gpu-1"); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			want[i] = want[i][:2] + "Warning kubernetes-object-monitor DiskIsNotHealthy " + want[i][2:] + " Recommended Action=NONE;"
		}
		if got := reported(); !slices.Equal(got, want) {
			t.Errorf("Events %q, want %q", got, want)
		}
	}
	one := lead()
	now := clock.Now()
	s.add(now.Add(-2*time.Hour), "too old")
	s.add(now.Add(-time.Minute), "slow")
	s.add(now.Add(-time.Second), "slow")
	s.add(now, "for the record", func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly })
	s.add(now, "fatal", func(r *record.Record) { r.Event.IsFatal = true })
	s.add(now, "well", func(r *record.Record) { r.Event.IsHealthy = true })
	s.add(now, "another machine", func(r *record.Record) { r.Node.ProviderID = "p2" })
	expect(one, "2 slow")
	expect(one, "2 slow")
	expect(lead(), "2 slow")
	clock.Step(time.Minute)
	s.add(clock.Now(), "slow")
	s.add(clock.Now(), "full")
	expect(one, "1 full", "3 slow")
	expect(lead(), "1 full", "3 slow")

	// The API server refuses for a while.
	away := true
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return away, nil, errors.New("away") })
	s.add(clock.Now(), "lost")
	if err := one.Handle(t.Context(), "gpu-1"); err == nil {
		t.Error("a failure is not told")
	}
	away = false
	expect(one, "1 full", "1 lost", "3 slow")

	for i := range conditions.MaxNotices + 10 {
		s.add(clock.Now(), fmt.Sprintf("flood %03d", i))
	}
	if err := one.Handle(t.Context(), "gpu-1"); err != nil {
		t.Fatal(err)
	}
	if got := reported(); len(got) != 3+conditions.MaxNotices {
		t.Errorf("%d Events of a flood, want the newest %d beside 3", len(got), conditions.MaxNotices)
	}
}
