package fleet

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of the brake's test, by what the brake finds them in.
const (
	waitsForAPerson = "gpu-0" // quarantined before, recovers within the brake
	inMidDrain      = "gpu-1" // a pod's budget holds it up, and goes within the brake
	drained         = "gpu-2" // the repair object is about to be created
	unsignalled     = "gpu-3" // the repair object is there, the signal about to be sent
	fresh           = "gpu-4" // has its faults within the brake

	guard = "guard" // the pod that holds up the drain
)

// acting are the services that the brake stops.
var acting = []string{"fault-quarantine", "node-drainer", "fault-remediation", "janitor"}

// braking is the suite with somebody at the brake.
type braking struct {
	*testing.T
	fleet *Fleet
	// offset is how long each service's log was when it was killed within the brake.
	offset map[string]int
}

// TestTheBrake: with every service as a process of its own, in the middle of all
// that cannot be taken back, the brake goes on: nothing new is cordoned, evicted,
// created or signalled, not by services that are killed and start again either,
// and a recovery releases its node. The brake goes off: everything goes on by
// itself.
func TestTheBrake(t *testing.T) {
	testkit.Long(t, "internal/brake on a real API server, and the brake's test of each of the four services")
	b := startBraking(t)
	b.before()
	obeyed := b.pull()
	b.within(0)
	for _, room := range acting {
		b.offset[room] = b.logged(room)
		b.fleet.Service(room).Kill()
	}
	b.within(1)
	b.recovers()
	b.stillStanding()
	b.nothingSince(obeyed)
	b.cli("brake", "off")
	b.allGoesOn()
	b.oneEventEach()
}

func startBraking(t *testing.T) *braking {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 5, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second, Audit: true,
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
		// What is parked, and why, is said at this level.
		Env: func(string, string) []string { return []string{"LOG_LEVEL=debug"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(inMidDrain, 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &braking{t, f, map[string]int{}}
}

// until waits for a condition of what is read.
func (b *braking) until(cond func(ctx context.Context) (bool, error)) {
	b.Helper()
	testkit.Until(b, 3*time.Minute, func() bool {
		ok, err := cond(b.Context())
		return err == nil && ok
	})
}

// before brings every node to where the brake shall find it.
func (b *braking) before() {
	b.Helper()
	b.report(&protos.HealthEvent{
		NodeName: waitsForAPerson, IsFatal: true, ErrorCode: []string{"79"}, RecommendedAction: protos.RecommendedAction_CONTACT_SUPPORT, Message: "a person's",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
	b.until(func(ctx context.Context) (bool, error) {
		node, err := b.fleet.Node(ctx, waitsForAPerson)
		return err == nil && node.Spec.Unschedulable, err
	})
	b.guard()
	b.fault(inMidDrain)
	b.reaches(inMidDrain, func(s record.Status) bool { return s.UserPodsEvictionStatus.Status == record.EvictionInProgress })
}

// guard is a pod whose budget lets nobody evict it.
func (b *braking) guard() {
	b.Helper()
	cluster := b.fleet.Cluster
	if _, err := cluster.AddPod(b.Context(), localcluster.PodSpec{Namespace: UserNamespace, Name: guard, Node: inMidDrain, GPUs: 1}); err != nil {
		b.Fatal(err)
	}
	if _, err := cluster.AddPDB(b.Context(), UserNamespace, guard, 1); err != nil {
		b.Fatal(err)
	}
	if _, err := cluster.WaitForPods(b.Context(), UserNamespace, guard, 1); err != nil {
		b.Fatal(err)
	}
}

// pull pulls the brake while the janitor is down with a signal to send, and
// fault-remediation with an object to create, so that they find it on when they
// start. It says how many requests came before all had heard of it.
func (b *braking) pull() (requests int) {
	b.Helper()
	err := b.fleet.Service("janitor").Swap(func() error {
		b.fault(unsignalled)
		b.until(func(ctx context.Context) (bool, error) { return b.objects(ctx, unsignalled) == 1, nil })
		return b.fleet.Service("fault-remediation").Swap(func() error {
			b.fault(drained)
			b.reaches(drained, func(s record.Status) bool { return s.DrainFinishTimestamp != nil })
			b.cli("brake", "on", "--reason", "wrong catalogue")
			for _, room := range []string{"fault-quarantine", "node-drainer"} {
				b.says(room, 0, "from now on", "wrong catalogue")
			}
			requests = len(b.requests())
			return nil
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	err = b.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(UserNamespace).Delete(b.Context(), guard, metav1.DeleteOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return requests
}

// within: every service has what it would do in hands, and does not do it.
func (b *braking) within(gpu int) {
	b.Helper()
	const why = "the emergency brake is on"
	if b.offset["node-drainer"] > 0 { // a drain that a budget has held up is asked again within the minute, or after a start
		b.says("node-drainer", b.offset["node-drainer"], why, inMidDrain)
	}
	b.says("fault-remediation", b.offset["fault-remediation"], why, drained)
	b.says("janitor", b.offset["janitor"], why, unsignalled)
	b.says("fault-quarantine", b.offset["fault-quarantine"], why) // all it knows, if it was killed
	if _, err := b.fleet.WriteXID(fresh, gpu, 79); err != nil {
		b.Fatal(err)
	}
	b.until(func(ctx context.Context) (bool, error) {
		records, err := b.fleet.Records(ctx, fresh)
		held := 0
		for _, r := range records {
			if v := r.Status.QuarantineVerdict; v != nil && r.Reason() == record.Held && strings.Contains(v.Detail, why) {
				held++
			}
		}
		return held == gpu+1, err
	})
}

// recovers ends the fault of a node that was quarantined before the brake.
func (b *braking) recovers() {
	b.Helper()
	b.report(&protos.HealthEvent{NodeName: waitsForAPerson, IsHealthy: true, Message: "No Health Failures"})
	b.until(func(ctx context.Context) (bool, error) { return b.inService(ctx, waitsForAPerson) })
}

// stillStanding: nothing that cannot be taken back has been done.
func (b *braking) stillStanding() {
	b.Helper()
	ctx := b.Context()
	if node, err := b.fleet.Node(ctx, fresh); err != nil || node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
		b.Errorf("%s: cordoned %t, taints %v, %v", fresh, node.Spec.Unschedulable, node.Spec.Taints, err)
	}
	if pod, err := b.fleet.Cluster.Client().CoreV1().Pods(UserNamespace).Get(ctx, guard, metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		b.Errorf("the guard's pod: %v", err)
	}
	if n := b.objects(ctx, drained); n != 0 {
		b.Errorf("%d repair objects for %s", n, drained)
	}
	if books, err := b.fleet.Books(); err != nil || len(books) != 0 {
		b.Errorf("the plugin was asked %v, %v", books, err)
	}
}

// nothingSince: no service asked the API server for what it may not do within the
// brake, whatever the answer.
func (b *braking) nothingSince(obeyed int) {
	b.Helper()
	for _, r := range b.requests()[obeyed:] {
		act := r.Verb + " " + r.Resource
		if act == "create pods/eviction" || act == "delete pods" || act == "create rebootnodes" || act == "create terminatenodes" || act == "delete nodes" {
			b.Errorf("within the brake: %s", r)
		}
	}
}

// allGoesOn: every node is repaired by one reboot and released.
func (b *braking) allGoesOn() {
	b.Helper()
	for _, node := range []string{inMidDrain, drained, unsignalled, fresh} {
		b.until(func(ctx context.Context) (bool, error) {
			n, err := b.fleet.Reboots(node)
			return n == 1, err
		})
		b.until(func(ctx context.Context) (bool, error) { return b.inService(ctx, node) })
		if n, err := b.fleet.Reboots(node); n != 1 || err != nil {
			b.Errorf("%s: %d reboots, %v", node, n, err)
		}
	}
	if n, err := b.fleet.Reboots(waitsForAPerson); n != 0 || err != nil {
		b.Errorf("%s: %d reboots, %v", waitsForAPerson, n, err)
	}
}

// oneEventEach: four services saw the brake go on and off, two of them again when
// they started, and each switching has one Event.
func (b *braking) oneEventEach() {
	b.Helper()
	list, err := b.fleet.Cluster.Client().CoreV1().Events(brake.DefaultNamespace).List(b.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + brake.Name})
	if err != nil {
		b.Fatal(err)
	}
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	slices.Sort(reasons)
	if !slices.Equal(reasons, []string{brake.EventOff, brake.EventOn}) {
		b.Errorf("events %q", reasons)
	}
}

// inService says whether a node bears no mark of ours, and has no open fault.
func (b *braking) inService(ctx context.Context, name string) (bool, error) {
	node, err := b.fleet.Node(ctx, name)
	if err != nil || node.Spec.Unschedulable || node.Annotations[nodemark.SessionAnnotation] != "" {
		return false, err
	}
	records, err := b.fleet.Records(ctx, name)
	return !slices.ContainsFunc(records, record.Open) && !slices.ContainsFunc(records, record.Pending), err
}

// fault writes an XID 79 into a node's kernel log.
func (b *braking) fault(node string) {
	b.Helper()
	if _, err := b.fleet.WriteXID(node, 0, 79); err != nil {
		b.Fatal(err)
	}
}

// reaches waits until a node's fault is so.
func (b *braking) reaches(node string, is func(record.Status) bool) {
	b.Helper()
	b.until(func(ctx context.Context) (bool, error) {
		records, err := b.fleet.Records(ctx, node)
		return slices.ContainsFunc(records, func(r record.Record) bool { return is(r.Status) }), err
	})
}

// report sends an event of the monitor at a node's own door.
func (b *braking) report(e *protos.HealthEvent) {
	b.Helper()
	conn, err := grpc.NewClient("unix://"+b.fleet.Socket(e.GetNodeName()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	e.Version, e.Agent, e.ComponentClass, e.CheckName, e.GeneratedTimestamp = 1, Monitor, "GPU", "SysLogsXIDError", timestamppb.Now()
	b.until(func(ctx context.Context) (bool, error) {
		_, err := protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}})
		return true, err
	})
}

// cli runs the command line as its administrator.
func (b *braking) cli(args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), filepath.Join(b.fleet.options.Bin, "nvsentinel"), append(args, "--kubeconfig", b.fleet.Cluster.AdminKubeconfig())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("nvsentinel %q: %v: %s", args, err, out)
	}
}

func (b *braking) requests() []localcluster.Request {
	b.Helper()
	all, err := b.fleet.Cluster.Requests()
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// logged is how long a service's log is.
func (b *braking) logged(room string) int {
	b.Helper()
	text, err := os.ReadFile(b.fleet.Service(room).Log)
	if err != nil {
		b.Fatal(err)
	}
	return len(text)
}

// says waits until a service has logged one line with all these words.
func (b *braking) says(room string, offset int, words ...string) {
	b.Helper()
	b.until(func(context.Context) (bool, error) {
		text, err := os.ReadFile(b.fleet.Service(room).Log)
		if err != nil {
			return false, err
		}
		for line := range strings.SplitSeq(string(text[offset:]), "\n") {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return true, nil
			}
		}
		return false, nil
	})
}

// objects counts the repair objects for a node.
func (b *braking) objects(ctx context.Context, node string) (n int) {
	b.Helper()
	list, err := b.fleet.Cluster.Dynamic().Resource(rebootNodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, x := range list.Items {
		if name, _, _ := unstructured.NestedString(x.Object, "spec", "nodeName"); name == node {
			n++
		}
	}
	return n
}

var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}
