package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	repairChainPath = "/apis/nvsentinel.dgxc.nvidia.com/v1alpha1/"
	jobsPath        = "/apis/batch/v1/namespaces/" + namespace + "/jobs"
	goodPod         = `"automountServiceAccountToken":false`
	someRun         = `{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairRun","metadata":{"name":"some-run"},"spec":{"nodeName":"some-node","chain":"some-chain"}}`
	someChain       = `{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairChain","metadata":{"name":"some-chain"},"spec":{"steps":[{"name":"a","template":"a"}]}}`
)

// job is one with words in its pod's spec and labels in its pod's metadata.
func job(words, labels string) string {
	if words != "" {
		words = "," + words
	}
	return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"some-job"},"spec":{"template":{"metadata":{"labels":{%s}},
		"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]%s}}}}`, labels, words)
}

// try asks the API server for something that it does not do.
func try(ctx context.Context, caller kubernetes.Interface, verb, path, body string) error {
	r := caller.Discovery().RESTClient().Verb(verb).AbsPath(path)
	if verb != http.MethodGet {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	if body != "" {
		r = r.Body([]byte(body))
	}
	if verb == http.MethodPatch {
		r = r.SetHeader("Content-Type", string(types.MergePatchType))
	}
	return r.Do(ctx).Error()
}

// TestChainsAreNobodysToWrite: repair-chain makes Jobs and the janitor's objects, and
// nothing by which it could do more; fault-remediation makes runs, and does not decide what they
// do.
func TestChainsAreNobodysToWrite(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "node").Name
	reboot := `{"apiVersion":"janitor.dgxc.nvidia.com/v1alpha1","kind":"RebootNode","metadata":{"name":"some-reboot"},"spec":{"nodeName":"` + node + `"}}`
	template := `{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairTemplate","metadata":{"name":"a"},"spec":{"template":{"apiVersion":"v1","kind":"Pod"}}}`
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a"}]}}`
	role := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"}}`
	const reboots, core = "/apis/janitor.dgxc.nvidia.com/v1alpha1/rebootnodes", "/api/v1/namespaces/" + namespace
	for _, tc := range []struct {
		account, verb, path, body string
		may                       bool
	}{
		{"repair-chain", http.MethodPost, jobsPath, job(goodPod, ""), true},
		{"repair-chain", http.MethodPost, reboots, reboot, true},
		{"repair-chain", http.MethodGet, "/api/v1/nodes/" + node, "", true},
		{"repair-chain", http.MethodGet, repairChainPath + "repairruns", "", true},
		{"repair-chain", http.MethodDelete, strings.Replace(jobsPath, namespace, "default", 1) + "/some-job", "", false},
		{"repair-chain", http.MethodDelete, "/api/v1/nodes/" + node, "", false},
		{"repair-chain", http.MethodPost, strings.Replace(jobsPath, namespace, "default", 1), job(goodPod, ""), false},
		{"repair-chain", http.MethodPost, core + "/pods", pod, false},
		{"repair-chain", http.MethodGet, core + "/secrets", "", false},
		{"repair-chain", http.MethodPost, core + "/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, false},
		{"repair-chain", http.MethodPost, core + "/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nvsentinel-pause"}}`, false},
		{"repair-chain", http.MethodPatch, "/api/v1/nodes/" + node, `{"spec":{"unschedulable":true}}`, false},
		{"repair-chain", http.MethodPatch, "/api/v1/nodes/" + node + "/status", "{}", false},
		{"repair-chain", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, false},
		{"repair-chain", http.MethodPost, repairChainPath + "repairruns", someRun, false},
		{"repair-chain", http.MethodPost, repairChainPath + "repairtemplates", template, false},
		{"repair-chain", http.MethodPatch, repairChainPath + "repairchains/some-chain", "{}", false},
		{"fault-remediation", http.MethodPost, repairChainPath + "repairruns", someRun, true},
		{"fault-remediation", http.MethodGet, repairChainPath + "repairruns", "", true},
		{"fault-remediation", http.MethodPatch, repairChainPath + "repairruns/some-run", "{}", false},
		{"fault-remediation", http.MethodPatch, repairChainPath + "repairruns/some-run/status", "{}", false},
		{"fault-remediation", http.MethodDelete, repairChainPath + "repairruns/some-run", "", false},
		{"fault-remediation", http.MethodPost, repairChainPath + "repairtemplates", template, false},
		{"fault-remediation", http.MethodPost, repairChainPath + "repairchains", someChain, false},
		{"fault-remediation", http.MethodGet, repairChainPath + "repairtemplates", "", false},
		{"fault-remediation", http.MethodPost, jobsPath, job(goodPod, ""), false},
		{"janitor", http.MethodPost, repairChainPath + "repairruns", someRun, false},
		{"node-health-check", http.MethodPost, repairChainPath + "repairruns", someRun, false},
	} {
		err := try(t.Context(), w.account(t, tc.account), tc.verb, tc.path, tc.body)
		if tc.may && err != nil || !tc.may && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %s %s: %v; it may: %v", tc.account, tc.verb, tc.path, err, tc.may)
		}
	}
}

// TestJobsOfSteps: in the namespace of the suite a step's pod is nobody of the suite,
// reads no Secret of it, and does not look like one of its pods. What others make there
// is not looked at.
func TestJobsOfSteps(t *testing.T) {
	w := newWorld(t)
	caller := w.account(t, "repair-chain")
	testkit.Until(t, 2*time.Minute, func() bool { // a policy takes effect shortly after it is applied
		err := try(t.Context(), caller, http.MethodPost, jobsPath, job("", ""))
		return refused(err) && strings.Contains(err.Error(), "has no token")
	})
	volume := func(source string) string { return goodPod + `,"volumes":[{"name":"v",` + source + `}]` }
	env := func(source string) string {
		return goodPod + `,"initContainers":[{"name":"b","image":"b",` + source + `}]`
	}
	const token, secret, looks, kinds = "has no token", "reads Secrets only", "does not look like", "has volumes of the kinds"
	for name, tc := range map[string]struct{ words, labels, refused string }{
		"no token":                    {goodPod, "", ""},
		"the default account":         {goodPod + `,"serviceAccountName":"default"`, "", ""},
		"an account of its own":       {`"serviceAccountName":"repair-step-logs"`, "", ""},
		"the default account's":       {`"serviceAccountName":"default"`, "", token},
		"the janitor's":               {`"serviceAccountName":"janitor"`, "", token},
		"the janitor, without token":  {goodPod + `,"serviceAccountName":"janitor"`, "", token},
		"the janitor's, as of old":    {goodPod + `,"serviceAccount":"janitor"`, "", token},
		"a token in a volume":         {volume(`"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}`), "", token},
		"a folder of its own":         {volume(`"emptyDir":{}`), "", ""},
		"a Secret of its own":         {volume(`"secret":{"secretName":"repair-step-tickets"}`), "", ""},
		"the store's address":         {volume(`"secret":{"secretName":"nvsentinel-store"}`), "", secret},
		"the store's, projected":      {volume(`"projected":{"sources":[{"secret":{"name":"nvsentinel-store"}}]}`), "", secret},
		"its own, projected":          {volume(`"projected":{"sources":[{"secret":{"name":"repair-step-tickets"}},{"configMap":{"name":"a"}}]}`), "", ""},
		"the store's, as a variable":  {env(`"env":[{"name":"A","value":"a"},{"name":"S","valueFrom":{"secretKeyRef":{"name":"nvsentinel-store","key":"uri"}}}]`), "", secret},
		"the store's, as variables":   {env(`"envFrom":[{"secretRef":{"name":"nvsentinel-store"}}]`), "", secret},
		"a Secret by a CSI driver":    {volume(`"csi":{"driver":"secrets-store.csi.k8s.io","volumeAttributes":{"secretProviderClass":"a"}}`), "", kinds},
		"a Secret for a CSI driver":   {volume(`"csi":{"driver":"a","nodePublishSecretRef":{"name":"nvsentinel-store"}}`), "", kinds},
		"a Secret for Ceph":           {volume(`"cephfs":{"monitors":["a"],"secretRef":{"name":"nvsentinel-store"}}`), "", kinds},
		"a Secret for a FlexVolume":   {volume(`"flexVolume":{"driver":"a/b","secretRef":{"name":"nvsentinel-store"}}`), "", kinds},
		"the trial database's volume": {volume(`"persistentVolumeClaim":{"claimName":"data-trial-postgresql"}`), "", kinds},
		"a volume of its own":         {volume(`"persistentVolumeClaim":{"claimName":"repair-step-logs"}`), "", ""},
		"a share":                     {volume(`"nfs":{"server":"a","path":"/b"}`), "", ""},
		"the node's files":            {volume(`"hostPath":{"path":"/"}`), "", ""},
		"the store's, for pulling":    {goodPod + `,"imagePullSecrets":[{"name":"nvsentinel-store"}]`, "", secret},
		"its own, for pulling":        {goodPod + `,"imagePullSecrets":[{"name":"repair-step-registry"}]`, "", ""},
		"its own, as variables": {
			env(`"env":[{"name":"S","valueFrom":{"secretKeyRef":{"name":"repair-step-a","key":"a"}}},{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],"envFrom":[{"secretRef":{"name":"repair-step-a"}},{"configMapRef":{"name":"a"}}]`), "", "",
		},
		"a name of its own":       {goodPod, `"app.kubernetes.io/name":"repair-step-logs","app":"a"`, ""},
		"the name of a service":   {goodPod, `"app.kubernetes.io/name":"janitor"`, looks},
		"a part of the suite":     {goodPod, `"app.kubernetes.io/part-of":"nvsentinel"`, looks},
		"a part of another suite": {goodPod, `"app.kubernetes.io/part-of":"validation"`, ""},
	} {
		err := try(t.Context(), caller, http.MethodPost, jobsPath, job(tc.words, tc.labels))
		switch {
		case tc.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)): // forbidden, it would wait
			t.Errorf("%s: %v, want it refused: %s", name, err, tc.refused)
		}
	}
	if err := try(t.Context(), w.admin, http.MethodPost, jobsPath, job(`"serviceAccountName":"janitor"`, "")); err != nil {
		t.Errorf("a Job that no step made: %v", err)
	}
	examples := exampleJobs(t)
	if len(examples) < 5 {
		t.Errorf("the examples make %d Jobs", len(examples))
	}
	for name, made := range examples {
		if err := try(t.Context(), caller, http.MethodPost, jobsPath, made); err != nil {
			t.Errorf("the Job of the example %s: %v\n%s", name, err, made)
		}
	}
}

// exampleJobs are what the templates of the examples make, those of Jobs, by name.
func exampleJobs(t *testing.T) map[string]string {
	t.Helper()
	run := &v1alpha1.RepairRun{ObjectMeta: metav1.ObjectMeta{Name: "some-run", UID: "some-uid"}, Spec: v1alpha1.RepairRunSpec{NodeName: "some-node"}}
	inputs := map[string]any{"boot": "a", "steps": map[string]any{}, "messages": map[string]any{}, "validation": "", "logs": []any{}}
	out := map[string]string{}
	for _, name := range []string{"reboot-and-validate", "collect-logs", "validate", "ticket"} {
		file, err := os.Open("../../examples/repair-chains/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
			template := &v1alpha1.RepairTemplate{}
			if err := documents.Decode(template); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if template.Kind != v1alpha1.TemplateKind {
				continue
			}
			compiled, err := chain.CompileTemplate(template)
			if err != nil {
				t.Fatalf("%s: %v", template.Name, err)
			}
			made, err := compiled.Render(run, template.Name, inputs)
			if err != nil {
				t.Fatalf("%s: %v", template.Name, err)
			}
			if compiled.GVK.Kind == "Job" {
				out[template.Name] = made.Submitted
			}
		}
	}
	return out
}

// unneeded are the rights of repair-chain that the run below does not need, and what
// does.
var unneeded = map[string]string{
	"repair-chain: create events nvsentinel":                         "the emergency brake is switched: internal/pause, tests/fleet TestPause",
	"repair-chain: list configmaps nvsentinel":                       "a watch begins with a list where the API server streams none (before Kubernetes 1.34)",
	"repair-chain: update leases.coordination.k8s.io medik8s-leases": "a run lasts longer than half of its lease's life: TestLeasesOfNodes",
	"repair-chain: patch events.events.k8s.io default":               "an Event that is there already is counted",
	"repair-chain: delete jobs.batch nvsentinel":                     "a run is deleted before its end: repair-chain/internal/reconciler TestARunThatIsDeleted",
	"repair-chain: delete rebootnodes.janitor.dgxc.nvidia.com":       "the same",
	"repair-chain: patch rebootnodes.janitor.dgxc.nvidia.com":        "a NodeHealthCheck gives its run up: internal/reconciler TestAbandonedRun",
	"repair-chain: patch gpuresets.janitor.dgxc.nvidia.com":          "as rebootnodes",
	"repair-chain: patch terminatenodes.janitor.dgxc.nvidia.com":     "as rebootnodes",
	"repair-chain: delete gpuresets.janitor.dgxc.nvidia.com":         "as rebootnodes",
	"repair-chain: delete terminatenodes.janitor.dgxc.nvidia.com":    "as rebootnodes",
	"repair-chain: create gpuresets.janitor.dgxc.nvidia.com":         "as rebootnodes",
	"repair-chain: create terminatenodes.janitor.dgxc.nvidia.com":    "as rebootnodes",
	"repair-chain: get gpuresets.janitor.dgxc.nvidia.com":            "as rebootnodes",
	"repair-chain: get terminatenodes.janitor.dgxc.nvidia.com":       "as rebootnodes",
	"repair-chain: list gpuresets.janitor.dgxc.nvidia.com":           "as rebootnodes",
	"repair-chain: list terminatenodes.janitor.dgxc.nvidia.com":      "as rebootnodes",
	"repair-chain: watch gpuresets.janitor.dgxc.nvidia.com":          "as rebootnodes",
	"repair-chain: watch terminatenodes.janitor.dgxc.nvidia.com":     "as rebootnodes",
}

// steps are a Job that follows its inputs, in the namespace of the suite, and a reboot.
const steps = `{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairTemplate","metadata":{"name":"logs"},"spec":{"lifecycle":"mutable","namespace":"nvsentinel",
  "template":{"apiVersion":"batch/v1","kind":"Job","spec":{"suspend":true,"template":{"spec":{
    "nodeName":"{{ .NodeName }}","restartPolicy":"Never","automountServiceAccountToken":false,"containers":[{"name":"a","image":"a"}]}}}},
  "artifactTracing":{"healthRule":{"alwaysHealthy":{}}}}}
---
{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairTemplate","metadata":{"name":"reboot"},"spec":{
  "template":{"apiVersion":"janitor.dgxc.nvidia.com/v1alpha1","kind":"RebootNode","spec":{"nodeName":"{{ .NodeName }}"}},
  "artifactTracing":{"healthRule":{"singleConditionType":"NodeReady"}}}}
---
{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairChain","metadata":{"name":"chain"},"spec":{"steps":[{"name":"logs","template":"logs"},{"name":"reboot","template":"reboot"}]}}
---
{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"RepairRun","metadata":{"name":"run"},"spec":{"nodeName":"chained-0","chain":"chain"}}
`

// TestRepairChainUsesItsRights: the service itself, under its account and with the
// policies active, works on a run from its begin to its removal; nothing is refused
// to it, and it is given nothing that it does not use.
func TestRepairChainUsesItsRights(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{AuditNamespace: namespace, NodePrefix: "chained", Nodes: 1})
	install(t, cluster, chainFiles...)
	if err := cluster.Apply(t.Context(), strings.NewReader(steps)); err != nil {
		t.Fatal(err)
	}
	startRepairChain(t, cluster)
	resource := func(group, version, name string) dynamic.NamespaceableResourceInterface {
		return cluster.Dynamic().Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: name})
	}
	reboots := resource("janitor.dgxc.nvidia.com", "v1alpha1", "rebootnodes")
	reboot := first(t, reboots) // behind the Job
	takesBack(t, resource("batch", "v1", "jobs").Namespace(namespace))
	ready := []byte(`{"status":{"conditions":[{"type":"NodeReady","status":"True","reason":"Ready","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`)
	if _, err := reboots.Patch(t.Context(), reboot.GetName(), types.MergePatchType, ready, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, 2*time.Minute, func() bool {
		_, err := resource("nvsentinel.dgxc.nvidia.com", "v1alpha1", "repairruns").Get(t.Context(), "run", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	var rights fleet.Rights
	var unused []string
	t.Cleanup(func() {
		for _, right := range unused {
			t.Errorf("a right that nobody used: %s", right)
		}
	})
	testkit.Until(t, 2*time.Minute, func() bool { // Events are written, and kinds watched, when there is time
		if err := rights.Add(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		unused = slices.DeleteFunc(rights.Unused("repair-chain"), func(right string) bool { return unneeded[right] != "" })
		return len(unused) == 0
	})
	for _, no := range rights.Refused() {
		t.Errorf("refused: %s", no)
	}
}

// takesBack waits until what was changed of a step's Job is as it was.
func takesBack(t *testing.T, jobs dynamic.ResourceInterface) {
	t.Helper()
	name := first(t, jobs).GetName()
	if _, err := jobs.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, 2*time.Minute, func() bool {
		now, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		suspended, _, _ := unstructured.NestedBool(now.Object, "spec", "suspend")
		return suspended
	})
}

// startRepairChain starts the service under its account; it ends with the test.
func startRepairChain(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	binary, err := testkit.Controller(t.TempDir(), "repair-chain")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), namespace, "repair-chain", tokenLifetime)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--kubeconfig", kubeconfig, "--leader-elect", "--metrics-address=off", "--run-retention=1ms", "--lease-namespace="+nodelease.DefaultNamespace)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
}

// first waits for the first object of a kind.
func first(t *testing.T, of dynamic.ResourceInterface) (o *unstructured.Unstructured) {
	t.Helper()
	testkit.Until(t, 2*time.Minute, func() bool {
		list, err := of.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		o = &list.Items[0]
		return true
	})
	return o
}
