// Package steps_test checks the templates and the chain of examples/repair-chains that use
// the programs of this module.
package steps_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
	"github.com/nvidia/nvsentinel/repair-steps/internal/ticket"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const namespace = "nvsentinel"

// example reads the objects of a file.
func example(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../examples/repair-chains/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
}

func into(t *testing.T, o *unstructured.Unstructured, typed any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		t.Fatal(err)
	}
}

const nasty = "Xid 79 \"off\" $(TOKEN) $$ {{ .Name }}\n\u2028 \x01 }"

// renderedJob is the Job that a template makes for a fault with an awkward text.
func renderedJob(t *testing.T, o *unstructured.Unstructured) (*chain.Template, *unstructured.Unstructured) {
	t.Helper()
	x := &v1alpha1.RepairTemplate{}
	into(t, o, x)
	compiled, err := chain.CompileTemplate(x)
	if err != nil {
		t.Fatalf("%s: %v", x.Name, err)
	}
	run := &v1alpha1.RepairRun{ObjectMeta: metav1.ObjectMeta{Name: "run-1", UID: "uid"}, Spec: v1alpha1.RepairRunSpec{
		NodeName: "gpu-1.example.com",
		Fault: v1alpha1.Fault{
			Record: "record-1", Action: "RESTART_VM", Agent: "syslog-health-monitor", CheckName: "SysLogsXIDError", ErrorCode: []string{"79"},
			Message: nasty + strings.Repeat("m", 16<<10-len(nasty)),
		},
	}}
	d, err := compiled.Render(run, "step", map[string]any{
		"boot": "boot-1", "steps": map[string]any{"validate": "Failed"}, "messages": map[string]any{"validate": nasty},
		"validation": "Failed", "logs": []any{"https://logs.example.com/x"},
	})
	if err != nil {
		t.Fatalf("%s: %v", x.Name, err)
	}
	job := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(d.Submitted), &job.Object); err != nil {
		t.Fatal(err)
	}
	return compiled, job
}

// jobs are what the templates make, by the templates' names.
func jobs(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, file := range []string{"collect-logs.yaml", "validate.yaml", "ticket.yaml"} {
		for _, o := range example(t, file) {
			_, all[o.GetName()] = renderedJob(t, o)
		}
	}
	return all
}

// TestJobsAreTaken by a real API server, field by field, and ask for no more than they need.
func TestJobsAreTaken(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	if err := cluster.Apply(t.Context(), strings.NewReader("{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")); err != nil {
		t.Fatal(err)
	}
	client := cluster.Dynamic().Resource(batchv1.SchemeGroupVersion.WithResource("jobs")).Namespace(namespace)
	for name, o := range jobs(t) {
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		job := &batchv1.Job{}
		into(t, o, job)
		pod := job.Spec.Template.Spec
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || job.Spec.TTLSecondsAfterFinished != nil || job.Spec.ActiveDeadlineSeconds == nil {
			t.Errorf("%s: a token, a removal of its own or no limit of time: %+v", name, job.Spec)
		}
		narrow(t, name, pod)
	}
}

// narrow checks what a pod may do.
func narrow(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	if privileged != (name == "collect-driver") || len(c.Resources.Requests) == 0 || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s: privileged %v, %v", name, privileged, c.Resources)
	}
	if !privileged && (c.SecurityContext.Capabilities == nil || c.SecurityContext.Capabilities.Drop[0] != "ALL" || *c.SecurityContext.AllowPrivilegeEscalation) {
		t.Errorf("%s: %+v", name, c.SecurityContext)
	}
	ofHost := map[string]bool{}
	for _, v := range pod.Volumes {
		ofHost[v.Name] = v.HostPath != nil
	}
	for _, m := range c.VolumeMounts {
		if ofHost[m.Name] && !m.ReadOnly {
			t.Errorf("%s may write to %s", name, m.MountPath)
		}
	}
}

// TestTheProgramsTakeTheirArguments as the examples give them, and their environment.
func TestTheProgramsTakeTheirArguments(t *testing.T) {
	all := jobs(t)
	for name, program := range map[string]string{"collect-logs": "log-collector", "collect-driver": "log-collector", "ticket": "ticket"} {
		path, err := testkit.Binary(t.TempDir(), program)
		if err != nil {
			t.Fatal(err)
		}
		job := &batchv1.Job{}
		into(t, all[name], job)
		c := job.Spec.Template.Spec.Containers[0]
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--check-config"}, c.Args...)...)
		for _, e := range c.Env {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestTicketContent: from the fault to the body, whatever is in the texts.
func TestTicketContent(t *testing.T) {
	job := &batchv1.Job{}
	into(t, jobs(t)["ticket"], job)
	cfg := ticket.Default()
	cfg.Facts = filepath.Join(t.TempDir(), "facts.json")
	if err := os.WriteFile(cfg.Facts, []byte(job.Spec.Template.Annotations["ticket-facts"]), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := ticket.Write(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Summary, Node, Action, Run, Validation string
		Fault                                  struct {
			Record, Agent, Check, Message string
			Codes                         []string
		}
		Steps, Messages map[string]string
		Logs            []string
	}
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	if body.Summary != "GPU node gpu-1.example.com: repair for RESTART_VM failed" || body.Run != "run-1" || body.Validation != "Failed" || body.Steps["validate"] != "Failed" ||
		body.Messages["validate"] != nasty || body.Logs[0] != "https://logs.example.com/x" || body.Fault.Record != "record-1" || body.Fault.Codes[0] != "79" ||
		body.Fault.Check != "SysLogsXIDError" || body.Fault.Agent != "syslog-health-monitor" || !strings.HasPrefix(body.Fault.Message, nasty) || len([]rune(body.Fault.Message)) != 1000 {
		t.Errorf("%s", text)
	}
}

// TestOutputs: the logs' URL is read of the Job, and is another for each run and step.
func TestOutputs(t *testing.T) {
	for _, o := range example(t, "collect-logs.yaml") {
		compiled, job := renderedJob(t, o)
		job.SetUID("uid")
		outputs, err := artifact.Read(job, compiled.Paths, artifact.Definition{}, nil, metav1.Now().Time)
		if err != nil || len(outputs) != 1 || !strings.Contains(outputs[0].Value, "https://logs.example.com/nvsentinel/gpu-1.example.com/"+job.GetName()+".tar.gz") {
			t.Errorf("%+v, %v", outputs, err)
		}
	}
}

// TestTheChain compiles, and its steps' templates are in the examples.
func TestTheChain(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []string{"collect-logs.yaml", "validate.yaml", "ticket.yaml", "reboot-and-validate.yaml"} {
		for _, o := range example(t, file) {
			known[o.GetName()] = o.GetKind() == v1alpha1.TemplateKind
		}
	}
	c := &v1alpha1.RepairChain{}
	into(t, example(t, "collect-reboot-validate.yaml")[0], c)
	if _, err := chain.Compile(c.Spec); err != nil {
		t.Error(err)
	}
	for _, s := range c.Spec.Steps {
		if !known[s.Template] {
			t.Errorf("step %s: no template %s", s.Name, s.Template)
		}
	}
}
