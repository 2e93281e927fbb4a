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

// pauseSuite is the suite with the emergency stop under the test's control.
type pauseSuite struct {
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
	b := startPauseSuite(t)
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

func startPauseSuite(t *testing.T) *pauseSuite {
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
	return &pauseSuite{t, f, map[string]int{}}
}

// until waits for a condition of what is read.
func (ps *pauseSuite) until(cond func(ctx context.Context) (bool, error)) {
	ps.Helper()
	testkit.Until(ps, 3*time.Minute, func() bool {
		ok, err := cond(ps.Context())
		return err == nil && ok
	})
}

// before brings every node into the state that it has when the emergency stop is activated.
func (ps *pauseSuite) before() {
	ps.Helper()
	ps.report(&protos.HealthEvent{
		NodeName: waitsForAPerson, IsFatal: true, ErrorCode: []string{"79"}, RecommendedAction: protos.RecommendedAction_CONTACT_SUPPORT, Message: "a person's",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
	ps.until(func(ctx context.Context) (bool, error) {
		node, err := ps.fleet.Node(ctx, waitsForAPerson)
		return err == nil && node.Spec.Unschedulable, err
	})
	ps.guard()
	ps.fault(inMidDrain)
	ps.reaches(inMidDrain, func(s record.Status) bool { return s.UserPodsEvictionStatus.Status == record.EvictionInProgress })
}

// guard is a pod whose budget lets nobody evict it.
func (ps *pauseSuite) guard() {
	ps.Helper()
	cluster := ps.fleet.Cluster
	if _, err := cluster.AddPod(ps.Context(), localcluster.PodSpec{Namespace: UserNamespace, Name: guard, Node: inMidDrain, GPUs: 1}); err != nil {
		ps.Fatal(err)
	}
	if _, err := cluster.AddPDB(ps.Context(), UserNamespace, guard, 1); err != nil {
		ps.Fatal(err)
	}
	if _, err := cluster.WaitForPods(ps.Context(), UserNamespace, guard, 1); err != nil {
		ps.Fatal(err)
	}
}

// pull activates the emergency stop while the janitor is down with a signal to send, and
// fault-remediation with an object to create, so that they find it on when they
// start. It returns how many requests came before all services had seen it.
func (ps *pauseSuite) pull() (requests int) {
	ps.Helper()
	err := ps.without(ps.replicas("janitor"), func() error {
		ps.fault(unsignalled)
		ps.until(func(ctx context.Context) (bool, error) { return ps.objects(ctx, unsignalled) == 1, nil })
		return ps.without(ps.replicas("fault-remediation"), func() error {
			ps.fault(drained)
			ps.reaches(drained, func(s record.Status) bool { return s.DrainFinishTimestamp != nil })
			ps.cli("pause", "--reason", "wrong catalog")
			for _, replica := range ps.replicas("fault-quarantine", "node-drainer") {
				ps.waitForLog([]*Service{replica}, "emergency stop activated", "wrong catalog")
			}
			requests = len(ps.requests())
			return nil
		})
	})
	if err != nil {
		ps.Fatal(err)
	}
	err = ps.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(UserNamespace).Delete(ps.Context(), guard, metav1.DeleteOptions{})
	if err != nil {
		ps.Fatal(err)
	}
	return requests
}

// within: the leader of every service has what it would do in hands, and does not
// do it.
func (ps *pauseSuite) within(gpu int) {
	ps.Helper()
	for service, node := range map[string]string{
		"node-drainer":      inMidDrain, // a drain that a budget has held up is asked again within the minute, or after a start
		"fault-remediation": drained, "janitor": unsignalled,
		"fault-quarantine": "", // all it knows, if it was killed
	} {
		ps.waitForLog(ps.replicas(service), "the emergency stop is on", node)
	}
	if _, err := ps.fleet.WriteXID(fresh, gpu, 79); err != nil {
		ps.Fatal(err)
	}
	ps.until(func(ctx context.Context) (bool, error) {
		records, err := ps.fleet.Records(ctx, fresh)
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
func (ps *pauseSuite) leaders() (out []*Service) {
	ps.Helper()
	for _, service := range acting {
		lease, err := ps.fleet.Cluster.Client().CoordinationV1().Leases("nvsentinel").Get(ps.Context(), leases[service], metav1.GetOptions{})
		if err != nil {
			ps.Fatal(err)
		}
		out = append(out, ps.waitForLog(ps.replicas(service), "leader observed", *lease.Spec.HolderIdentity, `"self":true`))
	}
	return out
}

// recovers ends the fault of a node that was quarantined before the emergency stop.
func (ps *pauseSuite) recovers() {
	ps.Helper()
	ps.report(&protos.HealthEvent{NodeName: waitsForAPerson, IsHealthy: true, Message: "No Health Failures"})
	ps.until(func(ctx context.Context) (bool, error) { return ps.inService(ctx, waitsForAPerson) })
}

// stillStanding: nothing that cannot be taken back has been done.
func (ps *pauseSuite) stillStanding() {
	ps.Helper()
	ctx := ps.Context()
	if node, err := ps.fleet.Node(ctx, fresh); err != nil || node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
		ps.Errorf("%s: cordoned %t, taints %v, %v", fresh, node.Spec.Unschedulable, node.Spec.Taints, err)
	}
	if pod, err := ps.fleet.Cluster.Client().CoreV1().Pods(UserNamespace).Get(ctx, guard, metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		ps.Errorf("the guard's pod: %v", err)
	}
	if n := ps.objects(ctx, drained); n != 0 {
		ps.Errorf("%d maintenance objects for %s", n, drained)
	}
	if journal, err := ps.fleet.JournalEntries(); err != nil || len(journal) != 0 {
		ps.Errorf("the plugin was asked %v, %v", journal, err)
	}
}

// nothingSince: no service requested a forbidden action from the API server during the emergency
// stop, whatever the answer.
func (ps *pauseSuite) nothingSince(obeyed int) {
	ps.Helper()
	for _, r := range ps.requests()[obeyed:] {
		act := r.Verb + " " + r.Resource
		if act == "create pods/eviction" || act == "delete pods" || act == "create rebootnodes" || act == "create terminatenodes" || act == "delete nodes" {
			ps.Errorf("within the brake: %s", r)
		}
	}
}

// expectAllRepaired: every node is repaired by one reboot and released.
func (ps *pauseSuite) expectAllRepaired() {
	ps.Helper()
	for _, node := range []string{inMidDrain, drained, unsignalled, fresh} {
		ps.until(func(ctx context.Context) (bool, error) {
			n, err := ps.fleet.Reboots(node)
			return n == 1, err
		})
		ps.until(func(ctx context.Context) (bool, error) { return ps.inService(ctx, node) })
		if n, err := ps.fleet.Reboots(node); n != 1 || err != nil {
			ps.Errorf("%s: %d reboots, %v", node, n, err)
		}
	}
	if n, err := ps.fleet.Reboots(waitsForAPerson); n != 0 || err != nil {
		ps.Errorf("%s: %d reboots, %v", waitsForAPerson, n, err)
	}
}

// oneEventEach: four services saw the activation and the end of the emergency stop, two of them
// again at their start, and each change has one Event.
func (ps *pauseSuite) oneEventEach() {
	ps.Helper()
	list, err := ps.fleet.Cluster.Client().CoreV1().Events(pause.DefaultNamespace).List(ps.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pause.Name})
	if err != nil {
		ps.Fatal(err)
	}
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	slices.Sort(reasons)
	if !slices.Equal(reasons, []string{pause.EventOn, pause.EventOff}) {
		ps.Errorf("events %q", reasons)
	}
}

// inService reports whether a node has no mark of NVSentinel and no open fault.
func (ps *pauseSuite) inService(ctx context.Context, name string) (bool, error) {
	node, err := ps.fleet.Node(ctx, name)
	if err != nil || node.Spec.Unschedulable || node.Annotations[nodemark.SessionAnnotation] != "" {
		return false, err
	}
	records, err := ps.fleet.Records(ctx, name)
	return !slices.ContainsFunc(records, record.Open) && !slices.ContainsFunc(records, record.Pending), err
}

// fault writes an XID 79 into a node's kernel log.
func (ps *pauseSuite) fault(node string) {
	ps.Helper()
	if _, err := ps.fleet.WriteXID(node, 0, 79); err != nil {
		ps.Fatal(err)
	}
}

// reaches waits until a node's fault is so.
func (ps *pauseSuite) reaches(node string, is func(record.Status) bool) {
	ps.Helper()
	ps.until(func(ctx context.Context) (bool, error) {
		records, err := ps.fleet.Records(ctx, node)
		return slices.ContainsFunc(records, func(r record.Record) bool { return is(r.Status) }), err
	})
}

// report sends an event of the monitor at a node's own ingest endpoint.
func (ps *pauseSuite) report(e *protos.HealthEvent) {
	ps.Helper()
	conn, err := grpc.NewClient("unix://"+ps.fleet.Socket(e.GetNodeName()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		ps.Fatal(err)
	}
	defer conn.Close()
	e.Version, e.Agent, e.ComponentClass, e.CheckName, e.GeneratedTimestamp = 1, Monitor, "GPU", "SysLogsXIDError", timestamppb.Now()
	ps.until(func(ctx context.Context) (bool, error) {
		_, err := protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}})
		return true, err
	})
}

// cli runs the command line as its administrator.
func (ps *pauseSuite) cli(args ...string) (output string) {
	ps.Helper()
	cmd := exec.CommandContext(ps.Context(), filepath.Join(ps.fleet.options.Bin, "nvsentinel"), append(args, "--kubeconfig", ps.fleet.Cluster.AdminKubeconfig())...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		ps.Fatalf("nvsentinel %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (ps *pauseSuite) requests() []localcluster.Request {
	ps.Helper()
	all, err := ps.fleet.Cluster.Requests()
	if err != nil {
		ps.Fatal(err)
	}
	return all
}

// replicas are the processes of these services.
func (ps *pauseSuite) replicas(services ...string) (out []*Service) {
	for _, service := range services {
		out = append(out, ps.fleet.Replicas(service)...)
	}
	return out
}

// kill kills processes, and makes only what is logged from then on count.
func (ps *pauseSuite) kill(processes ...*Service) {
	ps.Helper()
	for _, p := range ps.replicas(acting...) {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			ps.Fatal(err)
		}
		ps.offset[p.Name] = len(text)
	}
	for _, p := range processes {
		p.Kill()
	}
}

// without does something while none of these processes runs.
func (ps *pauseSuite) without(processes []*Service, do func() error) error {
	if len(processes) == 0 {
		return do()
	}
	return processes[0].Swap(func() error { return ps.without(processes[1:], do) })
}

// waitForLog waits until one of these processes has logged one line with all these
// words, and returns it.
func (ps *pauseSuite) waitForLog(processes []*Service, words ...string) (service *Service) {
	ps.Helper()
	ps.until(func(context.Context) (bool, error) {
		for _, p := range processes {
			text, err := os.ReadFile(p.Log)
			if err != nil {
				return false, err
			}
			for line := range strings.SplitSeq(string(text[ps.offset[p.Name]:]), "\n") {
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
func (ps *pauseSuite) objects(ctx context.Context, node string) (n int) {
	ps.Helper()
	list, err := ps.fleet.Cluster.Dynamic().Resource(rebootNodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		ps.Fatal(err)
	}
	for _, x := range list.Items {
		if name, _, _ := unstructured.NestedString(x.Object, "spec", "nodeName"); name == node {
			n++
		}
	}
	return n
}

var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}
