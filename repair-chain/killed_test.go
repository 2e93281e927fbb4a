package repairchain

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const (
	// waitTimeout bounds the waits for a condition, on machines of any speed.
	waitTimeout = 5 * time.Minute
	crds        = "../distros/helm/nvsentinel/crds/nvsentinel.dgxc.nvidia.com_"
)

var tasks = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "tasks"}

func install(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	for _, file := range []string{crds + "repairtemplates.yaml", crds + "repairchains.yaml", crds + "repairruns.yaml", "testdata/definitions.yaml"} {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		_ = text.Close()
	}
}

// observedTasks is what the API server was seen to have: each Task by its uid, and which input
// made which token.
type observedTasks struct {
	objects dynamic.NamespaceableResourceInterface

	mu     sync.Mutex
	uids   map[string]map[string]bool // by run and step
	inputs map[string]string          // by token
	work   sync.WaitGroup
}

// serve is the controller of Tasks: some time after a generation came, it is done, and the
// output names its input. Now and then a surrounding of the Task changes, and so does its
// output.
func (ot *observedTasks) serve(ctx context.Context) {
	defer ot.work.Done()
	for ctx.Err() == nil {
		w, err := ot.objects.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			ot.see(o)
			observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			if observed == o.GetGeneration() {
				continue
			}
			ot.work.Add(1)
			time.AfterFunc(time.Duration(20+rand.IntN(400))*time.Millisecond, func() {
				defer ot.work.Done()
				ot.finish(ctx, o.GetName())
			})
		}
		w.Stop()
	}
}

func (ot *observedTasks) see(o *unstructured.Unstructured) {
	ot.mu.Lock()
	defer ot.mu.Unlock()
	slot := o.GetAnnotations()[artifact.SlotAnnotation]
	if ot.uids[slot] == nil {
		ot.uids[slot] = map[string]bool{}
	}
	ot.uids[slot][string(o.GetUID())] = true
}

// finish writes the status of a Task as it is now.
func (ot *observedTasks) finish(ctx context.Context, name string) {
	o, err := ot.objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return
	}
	input, _, _ := unstructured.NestedString(o.Object, "spec", "input")
	token := fmt.Sprintf("%s-%x", name, rand.Uint64())
	ot.mu.Lock()
	ot.inputs[token] = input
	ot.mu.Unlock()
	o.Object["status"] = map[string]any{
		"observedGeneration": o.GetGeneration(), "token": token, "of": input,
		"conditions": []any{map[string]any{"type": "Done", "status": "True"}},
	}
	if _, err := ot.objects.UpdateStatus(ctx, o, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
		ot.work.Go(func() { ot.finish(ctx, name) })
	}
}

// TestKilled: a service that is killed again and again makes no object twice, and ties
// every output to the input that made it.
func TestKilled(t *testing.T) { killed(t, 3, 4) }

func TestAHundredRunsAreKilled(t *testing.T) {
	testkit.Long(t, "TestKilled, three runs")
	killed(t, 100, 30)
}

// killed has runs worked on by processes of which none lives for more than some writes.
func killed(t *testing.T, runs, writes int) {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{NodePrefix: "killed", Nodes: 1})
	install(t, cluster)
	binary, err := testkit.Controller(t.TempDir(), "repair-chain")
	if err != nil {
		t.Fatal(err)
	}
	b := &observedTasks{objects: cluster.Dynamic().Resource(tasks), uids: map[string]map[string]bool{}, inputs: map[string]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer func() { stop(); b.work.Wait() }()
	b.work.Add(1)
	go b.serve(ctx)
	client := cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("repairruns"))
	for i := range runs {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"nodeName": "killed-0", "chain": "three-steps", "fault": map[string]any{"record": fmt.Sprint("record-", i)},
		}}}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.RunKind))
		o.SetName(fmt.Sprintf("run-%03d-of-%d", i, runs))
		o.SetLabels(map[string]string{"of": fmt.Sprint(runs)})
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	deaths := 0
	for over := false; !over; {
		live(t, binary, filepath.Join(cluster.Dir(), "admin.kubeconfig"), []string{"kept", "created", "held"}[deaths%3], 1+rand.IntN(writes))
		deaths++
		over = ended(all(t, client, runs))
	}
	t.Logf("%d runs ended after %d deaths", runs, deaths)
	if deaths < 3 {
		t.Errorf("only %d deaths", deaths)
	}
	b.check(t, all(t, client, runs))
}

// live starts the service and kills it: at the n-th write of a kind, or after a while.
func live(t *testing.T, binary, kubeconfig, point string, n int) {
	t.Helper()
	cmd := exec.Command(binary, "--kubeconfig", kubeconfig, "--leader-elect=false", "--metrics-address=off", "--log-level=warn")
	cmd.Env = append(os.Environ(), fmt.Sprintf("NVSENTINEL_CRASH=repair-chain/%s:%d", point, n))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case <-over:
	case <-time.After(time.Duration(500+rand.IntN(3000)) * time.Millisecond):
		_ = cmd.Process.Kill()
		<-over
	}
	if cmd.ProcessState.Exited() { // and was not killed
		t.Fatalf("the service ended by itself: %s\n%s", cmd.ProcessState, &output)
	}
}

// all are the runs of a test of so many.
func all(t *testing.T, client dynamic.ResourceInterface, runs int) (out []v1alpha1.RepairRun) {
	t.Helper()
	list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: fmt.Sprint("of=", runs)})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		var run v1alpha1.RepairRun
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &run); err != nil {
			t.Fatal(err)
		}
		out = append(out, run)
	}
	return out
}

func ended(runs []v1alpha1.RepairRun) bool {
	for _, run := range runs {
		if !meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionSucceeded) {
			return false
		}
	}
	return true
}

// check compares the status of the runs with what was seen.
func (ot *observedTasks) check(t *testing.T, runs []v1alpha1.RepairRun) {
	t.Helper()
	ot.mu.Lock()
	defer ot.mu.Unlock()
	for _, run := range runs {
		input := run.Spec.Fault.Record
		var before string
		for _, s := range run.Status.Steps {
			if n := len(ot.uids[chain.SlotID(&run, s.Name)]); n != 1 {
				t.Errorf("step %s of %s has had %d objects", s.Name, run.Name, n)
			}
			if s.Name == "validate" {
				input += " " + before
			}
			outputs := map[string]v1alpha1.OutputTrace{}
			for _, o := range s.Outputs {
				outputs[o.Name] = o
			}
			token := outputs["token"].Value
			token = token[1 : len(token)-1] // of JSON
			want, err := artifact.Digest(map[string]any{"token": input})
			if err != nil {
				t.Fatal(err)
			}
			if ot.inputs[token] != input || outputs["of"].Value != fmt.Sprintf("%q", input) || outputs["token"].InputDigest != want {
				t.Errorf("run %s step %s: token %s was made of %q; the trace says %s of %s, and the input was %q",
					run.Name, s.Name, token, ot.inputs[token], outputs["of"].Value, outputs["token"].InputDigest, input)
			}
			before, input = input, token
		}
	}
}
