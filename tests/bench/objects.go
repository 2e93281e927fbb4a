package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const (
	objectMonitor  = "kubernetes-object-monitor"
	objectPolicies = 20
	faultLabel     = "bench/fault" // names the policy that is to match
	objectCreators = 64
	// objectResync is how often all is evaluated again; the default of 5 minutes
	// would only make the run longer.
	objectResync = 20 * time.Second
)

// objectsRun is an API server with many objects, and one object monitor.
type objectsRun struct {
	o       Options
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	dir     string
	diary   *diary
	pid     int
}

// objects measures the object monitor on an API server and etcd alone. Its
// requests are counted by the API server, in flow schemas of its account.
func objects(ctx context.Context, o Options) (rows []Row, err error) {
	r := &objectsRun{o: o, diary: newDiary()}
	if r.dir, err = os.MkdirTemp("", "bench-objects-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.cluster, err = localcluster.Start(ctx, localcluster.Options{Progress: o.Progress}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Stop()) }()
	r.client = r.cluster.Client()
	if err := r.furnish(ctx); err != nil {
		return nil, err
	}
	baseline, err := objectsBaseline(ctx, r.client, "node-0", o.Sizes.Changes)
	if err != nil {
		return nil, fmt.Errorf("floor of %s: %w", Objects, err)
	}
	stop, err := r.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	end, err := r.monitor(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if rows, err = r.measure(ctx, began, baseline); err != nil {
		log, _ := os.ReadFile(filepath.Join(r.dir, "log")) // what there is of it
		return rows, fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2000):])
	}
	return rows, nil
}

// furnish writes the objects, the rights and the counters of requests.
func (r *objectsRun) furnish(ctx context.Context) error {
	rights, err := os.Open(filepath.Join(r.o.Root, "distros/helm/nvsentinel/manifests/rbac.yaml"))
	if err != nil {
		return err
	}
	defer rights.Close()
	if err := r.cluster.Apply(ctx, rights); err != nil {
		return err
	}
	lease := []string{"leases"}
	for i, s := range []struct {
		name             string
		resources, verbs []string
	}{{"bench-leases", lease, []string{"*"}}, {"bench-watches", []string{"*"}, []string{"watch"}}, {"bench-rest", []string{"*"}, []string{"*"}}} {
		if _, err := r.client.FlowcontrolV1().FlowSchemas().Create(ctx, flowSchema(s.name, int32(100+i), s.resources, s.verbs), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("counting requests: %w", err)
		}
	}
	n := r.o.Sizes
	r.o.log("writing %d nodes and %d pods", n.ObjectNodes, n.ObjectPods)
	err = atOnce(n.ObjectNodes, objectCreators, func(i int) error {
		_, err := r.client.CoreV1().Nodes().Create(ctx, benchNode(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return atOnce(n.ObjectPods, objectCreators, func(i int) error {
		_, err := r.client.CoreV1().Pods("default").Create(ctx, benchPod(i, n.ObjectNodes), metav1.CreateOptions{})
		return err
	})
}

func flowSchema(name string, precedence int32, resources, verbs []string) *flowv1.FlowSchema {
	all := []string{"*"}
	return &flowv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowv1.PriorityLevelConfigurationReference{Name: "workload-high"}, MatchingPrecedence: precedence,
		DistinguisherMethod: &flowv1.FlowDistinguisherMethod{Type: flowv1.FlowDistinguisherMethodByUserType},
		Rules: []flowv1.PolicyRulesWithSubjects{{
			Subjects:      []flowv1.Subject{{Kind: flowv1.SubjectKindServiceAccount, ServiceAccount: &flowv1.ServiceAccountSubject{Namespace: "nvsentinel", Name: objectMonitor}}},
			ResourceRules: []flowv1.ResourcePolicyRule{{APIGroups: all, Resources: resources, Verbs: verbs, Namespaces: all, ClusterScope: true}},
		}},
	}}
}

// benchNode is a node of about 3 KB.
func benchNode(i int) *corev1.Node {
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"nvidia.com/gpu.present": "true", "topology.kubernetes.io/zone": fmt.Sprint(i % 8)},
		Annotations: map[string]string{"bench/note": strings.Repeat("x", 500)},
	}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: since, Message: "as it was written"})
	}
	for j := range 10 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("image-%d@%s", j, strings.Repeat("0", 64))}, SizeBytes: 1 << 30})
	}
	return node
}

// benchPod is a pod of about 3 KB on one of the nodes.
func benchPod(i, nodes int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": fmt.Sprint(i % 100)}, Annotations: map[string]string{"bench/note": strings.Repeat("x", 500)},
	}, Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%nodes)}}
	for j := range 2 {
		c := corev1.Container{Name: fmt.Sprintf("c%d", j), Image: "simulated"}
		for k := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: strings.Repeat("v", 40)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// policies are half about Nodes and half about Pods; a pod's node is named by
// the pod, or looked up.
func policies() string {
	var b strings.Builder
	for i := range objectPolicies {
		kind, predicate, association := "Node", "resource.status.conditions.exists(c, c.type == 'Ready' && (now - timestamp(c.lastTransitionTime)) > duration('10m'))", ""
		if i%2 == 1 {
			kind, predicate, association = "Pod", "resource.status.phase != 'Succeeded'", "resource.spec.nodeName"
			if i%4 == 1 {
				association = "lookup('v1', 'Node', '', resource.spec.nodeName).metadata.name"
			}
			association = fmt.Sprintf("[policies.nodeAssociation]\nexpression = %q\n", association)
		}
		fmt.Fprintf(&b, "[[policies]]\nname = \"Bench%d\"\nenabled = true\n[policies.resource]\ngroup = \"\"\nversion = \"v1\"\nkind = %q\n"+
			"[policies.predicate]\nexpression = %q\n%s[policies.healthEvent]\ncomponentClass = \"Node\"\nisFatal = true\nmessage = \"measured\"\nrecommendedAction = \"CONTACT_SUPPORT\"\n",
			i, kind, fmt.Sprintf("%s && resource.metadata.?labels['%s'].orValue('') == 'Bench%d'", predicate, faultLabel, i), association)
	}
	return b.String()
}

// setFault labels an object; an empty value ends the fault.
func setFault(ctx context.Context, client kubernetes.Interface, kind, name, value string) error {
	label := any(value)
	if value == "" {
		label = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{faultLabel: label}}})
	if err != nil {
		return err
	}
	if kind == "Node" {
		_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// noting is a connector that notes when an event came.
type noting struct {
	protos.UnimplementedPlatformConnectorServer
	diary *diary
}

// HealthEventOccurredV1 is the connector's RPC.
func (n noting) HealthEventOccurredV1(_ context.Context, in *protos.HealthEvents) (*emptypb.Empty, error) {
	now := time.Now()
	for _, e := range in.GetEvents() {
		n.diary.note(fmt.Sprintf("%v %s %s", e.GetIsHealthy(), e.GetCheckName(), e.GetEntitiesImpacted()[0].GetEntityValue()), now)
	}
	return &emptypb.Empty{}, nil
}

func (r *objectsRun) listen(ctx context.Context) (stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(r.dir, "s"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	protos.RegisterPlatformConnectorServer(server, noting{diary: r.diary})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	return func() error { server.Stop(); return <-done }, nil
}

// monitor starts the service under its own account.
func (r *objectsRun) monitor(ctx context.Context) (end func(), err error) {
	kubeconfig, err := r.cluster.ServiceAccountKubeconfig(ctx, "nvsentinel", objectMonitor, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.dir, "policies.toml")
	if err := os.WriteFile(file, []byte(policies()), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(r.o.Bin, objectMonitor), "--kubeconfig", kubeconfig, "--policy-config-path", file, "--leader-elect",
		"--platform-connector-socket", "unix://"+filepath.Join(r.dir, "s"), "--metrics-address", "127.0.0.1:0", "--resync-period", objectResync.String())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r.pid = cmd.Process.Pid
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // by our signal
	}, nil
}

// address is where the service serves its metrics, from its log; it is empty before the service
// logs it.
func (r *objectsRun) address() string {
	return loggedAddress(filepath.Join(r.dir, "log"), "probe and metrics server started")
}

// number reads a metric of the monitor, or of the API server if path is given.
func (r *objectsRun) number(ctx context.Context, metric string, server bool) (float64, error) {
	if !server {
		return metricOf(ctx, r.address(), metric)
	}
	body, err := r.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	return parseMetric(string(body), metric)
}
