package reconciler_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	conf "github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// unreadable is a store in which one document cannot be decoded.
type unreadable struct {
	keeps
	id string
}

// keeps is the port under another name, since one of its methods has that of the port.
type keeps interface{ store.Maintenances }

func (u unreadable) Maintenances(ctx context.Context, csp string, ids []string) ([]maintenance.Event, error) {
	got, err := u.keeps.Maintenances(ctx, csp, ids)
	if err == nil && slices.Contains(ids, u.id) {
		err = &store.UndecodableError{IDs: []string{u.id}}
	}
	return got, err
}

func TestConfig(t *testing.T) {
	valid := func(edit func(*program.Config)) program.Config {
		c := program.Default()
		c.ClusterName, c.Store, c.SingleHost = "c", conf.NewSecret("sqlite:///tmp/x.db"), true
		edit(&c)
		return c
	}
	if c := program.Default(); c.Strategy != record.PersistOnly {
		t.Errorf("without a word it is %s", c.Strategy)
	}
	for want, edit := range map[string]func(*program.Config){
		"":                                    func(*program.Config) {},
		"clusterName":                         func(c *program.Config) { c.ClusterName = "" },
		"maintenanceEventPollIntervalSeconds": func(c *program.Config) { c.RoundSeconds = 9 },
		"pollingIntervalSeconds":              func(c *program.Config) { c.PollSeconds = 29 },
		"triggerQuarantineWorkflowTimeLimitMinutes": func(c *program.Config) { c.LeadMinutes = -1 },
		"postMaintenanceHealthyDelayMinutes":        func(c *program.Config) { c.DelayMinutes = 7*24*60 + 1 },
		"nodeReadinessTimeoutMinutes":               func(c *program.Config) { c.ReadyMinutes = 0 },
		"processingStrategy":                        func(c *program.Config) { c.Strategy = "STORE_ONLY" },
		"platformConnectorSocket":                   func(c *program.Config) { c.Socket = "" },
		"store (--store)":                           func(c *program.Config) { c.SingleHost = false },
	} {
		err := valid(edit).Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
	p := valid(func(*program.Config) {}).Policy()
	if p.Lead != 30*time.Minute || p.HealthyDelay != 15*time.Minute || p.Readiness != time.Hour {
		t.Errorf("policy %+v", p)
	}
}

func TestFleet(t *testing.T) {
	node := func(name, providerID string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	f := reconciler.Of([]*corev1.Node{
		node("b", "aws:///z/i-1", corev1.ConditionFalse), node("a", "aws:///z/i-1", corev1.ConditionTrue),
		node("c", "aws:///z/i-2", corev1.ConditionUnknown), node("d", "", corev1.ConditionTrue),
	}, announcement.Bulletin{}.Machine)
	if n, contested := f.OfMachine("i-1"); n.Name != "" || !contested {
		t.Errorf("of two Nodes of one machine: %+v, contested %v", n, contested)
	}
	for _, tt := range []struct {
		names     []string
		want      string
		contested bool
	}{
		{[]string{"B"}, "b", false}, {[]string{"x", "a"}, "a", false}, {[]string{"c"}, "", true}, {[]string{""}, "", true}, {[]string{"a", "b"}, "", true},
	} {
		if n, contested := f.WithNames(map[string][]string{"i-1": tt.names}).OfMachine("i-1"); n.Name != tt.want || contested != tt.contested {
			t.Errorf("named %q: %+v, contested %v; want %q, %v", tt.names, n, contested, tt.want, tt.contested)
		}
	}
	if got := f.Contested(); len(got) != 1 || !slices.Equal(got["i-1"], []string{"a", "b"}) {
		t.Errorf("contested are %v", got)
	}
	if n, contested := f.WithNames(map[string][]string{"i-2": {"a"}}).OfMachine("i-2"); n.Name != "c" || n.Ready || contested {
		t.Errorf("a node of which nothing is known: %+v, contested %v", n, contested)
	}
	if n, contested := f.OfMachine("i-9"); n.Name != "" || contested {
		t.Errorf("a machine without a node: %+v, contested %v", n, contested)
	}
	if n, ok := f.Named("d"); !ok || n.Machine != "" || len(f.Machines) != 2 {
		t.Errorf("a node without a machine: %+v, %v; %d machines", n, ok, len(f.Machines))
	}
}

func TestBulletin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bulletin.json")
	source := announcement.Bulletin{Path: path}
	if _, err := source.Read(t.Context(), announcement.Question{}); err == nil || source.Check(t.Context()) == nil {
		t.Error("a file that is not there was read")
	}
	if err := os.WriteFile(path, []byte(`[{"id": "m1", "machine": "i-1", "state": "Ongoing", "begin": "2026-05-01T12:00:00Z", "action": "RESTART_VM"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := source.Read(t.Context(), announcement.Question{})
	if err != nil || source.Check(t.Context()) != nil || !r.Complete || len(r.Announcements) != 1 || !r.Announcements[0].Begin.Equal(noon) {
		t.Errorf("%+v, %v", r, err)
	}
	for text, want := range map[string]string{
		`{}`: "cannot unmarshal", `[{"idd": ""}]`: "unknown field", `[] []`: "unexpected data after the array",
		`[{"id": "m", "machine": "i", "state": "Soon"}]`: `"Soon"`, `[{"id": "", "machine": "i", "state": "Ongoing"}]`: "empty",
		`[{"id": "m", "machine": "i", "state": "Ongoing", "action": "DANCE"}]`: "DANCE",
	} {
		if _, err := announcement.ParseBulletin([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzBulletin: whatever stands in the file, what is read of it has a state, an id and
// a machine.
func FuzzBulletin(f *testing.F) {
	f.Add([]byte(`[{"id": "m1", "machine": "i-1", "state": "Ongoing", "metadata": {"a": "b"}}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := announcement.ParseBulletin(data)
		for _, a := range all {
			if err == nil && (a.ID == "" || a.Machine == "" || a.State == "") {
				t.Errorf("%+v", a)
			}
		}
	})
}
