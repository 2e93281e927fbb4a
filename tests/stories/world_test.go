// Package stories describes the life of a node as scripts, with the decisions of all services
// and none of their effects: the ledger, the marks, the drain's and the repair's plan and the
// reboot's decisions work on one Node, its pods, its records and its maintenance objects, all in
// memory.
package stories

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	quarantine "github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	repair "github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	janitor "github.com/nvidia/nvsentinel/janitor/repair"
)

const nodeName = "gpu-1"

// world is one node with everything that is known about it.
type world struct {
	t     *testing.T
	now   time.Time
	start time.Time

	rules      *rulematch.Rules
	repairs    action.Policy
	eviction   eviction.Policy
	dryRun     bool
	anyone     bool   // releaseOnAnyUncordon
	holdReason string // why the budget allows no new session, or empty

	node *corev1.Node // nil: certainly absent
	// kubelet is the state that a watch of the kubelet shows, whatever the Node's condition is.
	kubelet kubelet.State
	uids    int
	pods    []*corev1.Pod
	disk    disk
	// late are events that their publisher has numbered and not delivered.
	late    map[string]record.Record
	records map[string]record.Record
	// backup is an older state of the records.
	backup map[string]record.Record
	// checks are the Node's conditions that its connector writes.
	checks  map[string]quarantine.Check
	objects map[string]*object
	// signals are what the provider was asked for, by idempotency key.
	signals []string
	// machineDeleted: the provider has no machine of the node's name any more.
	machineDeleted bool
	// claims are the claims that were seen without their object.
	claims repair.Claims
	// silent makes the provider's answers get lost.
	silent bool

	// writes counts status updates and effects; the service that makes the one numbered
	// crashAt dies right before it.
	writes, crashAt int
	out             strings.Builder
}

// object is a maintenance object and what the janitor wrote into it.
type object struct {
	janitor.Object
	name      string
	group     string
	ordinal   int
	createdAt time.Time
	health    healthrule.Result
	unsent    bool
	over      bool // refused because the quarantine session has ended
	observed  string
}

func newWorld(t *testing.T, crashAt int) *world {
	t.Helper()
	rules, err := rulematch.Compile([]rulematch.Set{{
		Enabled: true, Version: "1", Name: "every fatal event", Cordon: rulematch.Cordon{ShouldCordon: true},
		Match: rulematch.Match{All: []rulematch.Rule{{Kind: "HealthEvent", Expression: "event.isFatal"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := eviction.Default()
	file.UserNamespaces = []eviction.NamespaceRule{{Name: "training", Mode: eviction.Immediate}}
	policy, err := file.Compile()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	return &world{
		t: t, now: start, start: start, rules: rules, repairs: repairs, eviction: policy, crashAt: crashAt, kubelet: kubelet.Alive,
		late: map[string]record.Record{}, records: map[string]record.Record{}, objects: map[string]*object{},
	}
}

// crash is thrown where a process dies; whatever it did before stays done.
type crash struct{}

// write is the point before a status update or an effect.
func (w *world) write() {
	w.writes++
	if w.writes == w.crashAt {
		panic(crash{})
	}
}

// log prints a line of the story.
func (w *world) log(service, format string, args ...any) {
	fmt.Fprintf(&w.out, "%-18s %s\n", service, fmt.Sprintf(format, args...))
}

// update writes one status as strictly as a store does.
func (w *world) update(writer record.Writer, id string, revision int64, status record.Status, expire *time.Time) {
	r, ok := w.records[id]
	if !ok || r.Revision != revision {
		w.t.Fatalf("%s writes %s at revision %d, stored is %d", writer, id, revision, r.Revision)
	}
	if err := record.CheckWrite(writer, r.Status, status); err != nil {
		w.t.Errorf("%s writes %s: %v", writer, id, err)
	}
	r.Status, r.Revision, r.ExpireAt = status, revision+1, expire
	w.records[id] = r
}

// list selects records in append order.
func (w *world) list(s record.Selector) []record.Record {
	var out []record.Record
	for _, r := range w.records {
		if s.Matches(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	return out
}

// inOrder lists the maintenance objects by their age.
func (w *world) inOrder() []*object {
	return slices.SortedFunc(maps.Values(w.objects), func(a, b *object) int {
		return cmp.Or(a.createdAt.Compare(b.createdAt), cmp.Compare(a.UID, b.UID))
	})
}

// settle lets every service work until none has anything left to do now.
func (w *world) settle() {
	for range 50 {
		before := w.writes
		for _, service := range []func(){w.quarantine, w.drain, w.sweep, w.remediate, w.janitor} {
			w.run(service)
		}
		if w.writes == before {
			return
		}
	}
	w.t.Fatalf("the services do not come to rest:\n%s", w.out.String())
}

// run lets one service work; it may die, and then works again from the start.
func (w *world) run(service func()) {
	defer func() {
		switch p := recover(); p.(type) {
		case nil, crash:
		default:
			panic(p)
		}
	}()
	service()
}
