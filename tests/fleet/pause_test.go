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

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of the test of the emergency stop, named by their state when it is activated.
const (
	waitsForAPerson = "gpu-0" // quarantined before, recovers during the emergency stop
	inMidDrain      = "gpu-1" // a pod's budget blocks it, and is removed during the emergency stop
	drained         = "gpu-2" // the maintenance object is about to be created
	unsignalled     = "gpu-3" // the maintenance object is there, the signal about to be sent
	fresh           = "gpu-4" // has its faults during the emergency stop

	guard = "guard" // the pod that holds up the drain
)

// acting are the services that the emergency stop halts.
var acting = []string{"fault-quarantine", "node-drainer", "fault-remediation", "janitor"}

// braking is the suite with the emergency stop under the test's control.
type braking struct {
	*testing.T
	fleet *Fleet
	// offset is how long each process's log was when one was last killed during the emergency
	// stop.
	offset map[string]int
}

// TestPause: with two replicas of every service as processes of their own, in the middle of
// every irreversible action, the emergency stop is activated: nothing new is cordoned, evicted,
// created or signalled, not by the replica that leads after the leader is killed, nor when all
// are killed and start again, and a recovery releases its node. The emergency stop is lifted:
// everything continues by itself.
func TestPause(t *testing.T) {
	testkit.Long(t, "internal/pause on a real API server, and the brake's test of each of the four services")
	b := startBraking(t)
	b.before()
	obeyed := b.pull()
	b.within(0)
	b.kill(b.leaders()...)
	b.within(1)
	b.kill(b.replicas(acting...)...)
	b.within(2)
	b.recovers()
	b.stillStanding()
	b.nothingSince(obeyed)
	b.cli("resume")
	b.expectAllRepaired()
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
		Nodes: 5, Store: "postgresql", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second, Audit: true,
		Replicas: 2, Lease: 6 * time.Second, JanitorFlags: []string{"--plugin-timeout", "2s", "--resend-after", "4s"},
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
		// The log names what is parked, and why, at this level.
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

// before brings every node into the state that it has when the emergency stop is activated.
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

// pull activates the emergency stop while the janitor is down with a signal to send, and
// fault-remediation with an object to create, so that they find it on when they
// start. It returns how many requests came before all services had seen it.
func (b *braking) pull() (requests int) {
	b.Helper()
	err := b.without(b.replicas("janitor"), func() error {
		b.fault(unsignalled)
		b.until(func(ctx context.Context) (bool, error) { return b.objects(ctx, unsignalled) == 1, nil })
		return b.without(b.replicas("fault-remediation"), func() error {
			b.fault(drained)
			b.reaches(drained, func(s record.Status) bool { return s.DrainFinishTimestamp != nil })
			b.cli("pause", "--reason", "wrong catalog")
			for _, replica := range b.replicas("fault-quarantine", "node-drainer") {
				b.waitForLog([]*Service{replica}, "emergency stop activated", "wrong catalog")
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

// within: the leader of every service has what it would do in hands, and does not
// do it.
func (b *braking) within(gpu int) {
	b.Helper()
	for room, node := range map[string]string{
		"node-drainer":      inMidDrain, // a drain that a budget has held up is asked again within the minute, or after a start
		"fault-remediation": drained, "janitor": unsignalled,
		"fault-quarantine": "", // all it knows, if it was killed
	} {
		b.waitForLog(b.replicas(room), "the emergency stop is on", node)
	}
	if _, err := b.fleet.WriteXID(fresh, gpu, 79); err != nil {
		b.Fatal(err)
	}
	b.until(func(ctx context.Context) (bool, error) {
		records, err := b.fleet.Records(ctx, fresh)
		held := 0
		for _, r := range records {
			if v := r.Status.QuarantineVerdict; v != nil && r.Reason() == record.Held && strings.Contains(v.Detail, "the emergency stop is on") {
				held++
			}
		}
		return held == gpu+1, err
	})
}

// leaders are the replicas that were the last of their service to lead.
func (b *braking) leaders() (out []*Service) {
	b.Helper()
	for _, room := range acting {
		lease, err := b.fleet.Cluster.Client().CoordinationV1().Leases("nvsentinel").Get(b.Context(), leases[room], metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, b.waitForLog(b.replicas(room), "leader observed", *lease.Spec.HolderIdentity, `"self":true`))
	}
	return out
}

// recovers ends the fault of a node that was quarantined before the emergency stop.
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
		b.Errorf("%d maintenance objects for %s", n, drained)
	}
	if books, err := b.fleet.JournalEntries(); err != nil || len(books) != 0 {
		b.Errorf("the plugin was asked %v, %v", books, err)
	}
}

// nothingSince: no service requested a forbidden action from the API server during the emergency
// stop, whatever the answer.
func (b *braking) nothingSince(obeyed int) {
	b.Helper()
	for _, r := range b.requests()[obeyed:] {
		act := r.Verb + " " + r.Resource
		if act == "create pods/eviction" || act == "delete pods" || act == "create rebootnodes" || act == "create terminatenodes" || act == "delete nodes" {
			b.Errorf("within the brake: %s", r)
		}
	}
}

// expectAllRepaired: every node is repaired by one reboot and released.
func (b *braking) expectAllRepaired() {
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

// oneEventEach: four services saw the activation and the end of the emergency stop, two of them
// again at their start, and each change has one Event.
func (b *braking) oneEventEach() {
	b.Helper()
	list, err := b.fleet.Cluster.Client().CoreV1().Events(pause.DefaultNamespace).List(b.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pause.Name})
	if err != nil {
		b.Fatal(err)
	}
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	slices.Sort(reasons)
	if !slices.Equal(reasons, []string{pause.EventOn, pause.EventOff}) {
		b.Errorf("events %q", reasons)
	}
}

// inService reports whether a node has no mark of NVSentinel and no open fault.
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

// report sends an event of the monitor at a node's own ingest endpoint.
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
func (b *braking) cli(args ...string) (output string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), filepath.Join(b.fleet.options.Bin, "nvsentinel"), append(args, "--kubeconfig", b.fleet.Cluster.AdminKubeconfig())...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("nvsentinel %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (b *braking) requests() []localcluster.Request {
	b.Helper()
	all, err := b.fleet.Cluster.Requests()
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// replicas are the processes of these services.
func (b *braking) replicas(rooms ...string) (out []*Service) {
	for _, room := range rooms {
		out = append(out, b.fleet.Replicas(room)...)
	}
	return out
}

// kill kills processes, and makes only what is logged from then on count.
func (b *braking) kill(processes ...*Service) {
	b.Helper()
	for _, p := range b.replicas(acting...) {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			b.Fatal(err)
		}
		b.offset[p.Name] = len(text)
	}
	for _, p := range processes {
		p.Kill()
	}
}

// without does something while none of these processes runs.
func (b *braking) without(processes []*Service, do func() error) error {
	if len(processes) == 0 {
		return do()
	}
	return processes[0].Swap(func() error { return b.without(processes[1:], do) })
}

// waitForLog waits until one of these processes has logged one line with all these
// words, and returns it.
func (b *braking) waitForLog(processes []*Service, words ...string) (service *Service) {
	b.Helper()
	b.until(func(context.Context) (bool, error) {
		for _, p := range processes {
			text, err := os.ReadFile(p.Log)
			if err != nil {
				return false, err
			}
			for line := range strings.SplitSeq(string(text[b.offset[p.Name]:]), "\n") {
				if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
					service = p
					return true, nil
				}
			}
		}
		return false, nil
	})
	return service
}

// objects counts the maintenance objects for a node.
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
